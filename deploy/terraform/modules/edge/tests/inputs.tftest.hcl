# What the module refuses, and what it takes: `terraform test`.

variables {
  control_url = "https://control.example.com"
  token_file  = "/run/secrets/gtm-token"
  package     = { version = "0.1.0" }
}

run "as_little_as_can_be" {
  command = plan
  assert {
    condition     = output.environment.GTM_DNS_PORT == "53" && output.environment.GTM_DNS_BIND == "0.0.0.0,::"
    error_message = "DNS is not on every address"
  }
  assert {
    condition     = !contains(keys(output.environment), "GTM_EDGE_NAME")
    error_message = "what is left out is set"
  }
  assert {
    condition     = strcontains(output.unit, "StateDirectory=gtm-edge")
    error_message = "the last-good file has no place"
  }
}

run "a_token_in_the_clear" {
  command = plan
  variables {
    token_file = null
    token      = "gtm_abc"
  }
  assert {
    condition     = strcontains(nonsensitive(output.script), "gtm_abc") && !strcontains(output.unit, "gtm_abc")
    error_message = "the token is not where it belongs"
  }
}

run "a_control_of_this_machine" {
  command = plan
  variables {
    control_url = "http://127.0.0.1:8080"
  }
  assert {
    condition     = output.environment.GTM_CONTROL_URL == "http://127.0.0.1:8080"
    error_message = "control is not what was given"
  }
}

run "a_network_of_ones_own" {
  command = plan
  variables {
    control_url      = "http://control.internal:8080"
    insecure_control = true
  }
  assert {
    condition     = output.environment.GTM_INSECURE_CONTROL == "true"
    error_message = "the edge would refuse"
  }
}

run "control_that_is_no_url" {
  command = plan
  variables {
    control_url = "control.example.com"
  }
  expect_failures = [var.control_url]
}

run "a_path_as_certificate" {
  command = plan
  variables {
    control_ca = "/etc/ca.pem"
  }
  expect_failures = [var.control_ca]
}

run "a_token_as_file" {
  command = plan
  variables {
    token_file = "gtm_abc"
  }
  expect_failures = [var.token_file]
}

run "a_command_of_two_lines" {
  command = plan
  variables {
    token_file    = null
    token_command = "a\nb"
  }
  expect_failures = [var.token_command]
}

run "a_token_of_another" {
  command = plan
  variables {
    token_file = null
    token      = "secret"
  }
  expect_failures = [var.token]
}

run "a_name_with_spaces" {
  command = plan
  variables {
    name = "fra 1"
  }
  expect_failures = [var.name]
}

run "no_address" {
  command = plan
  variables {
    dns_addresses = []
  }
  expect_failures = [var.dns_addresses]
}

run "a_name_as_address" {
  command = plan
  variables {
    http_addresses = ["localhost"]
  }
  expect_failures = [var.http_addresses]
}

run "an_address_with_a_port" {
  command = plan
  variables {
    dns_addresses = ["192.0.2.1:53"]
  }
  expect_failures = [var.dns_addresses]
}

run "no_port" {
  command = plan
  variables {
    dns_port = 0
  }
  expect_failures = [var.dns_port]
}

run "a_port_too_high" {
  command = plan
  variables {
    http_port = 65536
  }
  expect_failures = [var.http_port]
}

run "an_unknown_way" {
  command = plan
  variables {
    systemd_resolved = "kill"
  }
  expect_failures = [var.systemd_resolved]
}

run "no_workers" {
  command = plan
  variables {
    workers = 0
  }
  expect_failures = [var.workers]
}

run "a_proxy_by_name" {
  command = plan
  variables {
    trusted_proxies = ["proxy.example.com"]
  }
  expect_failures = [var.trusted_proxies]
}

run "a_country_by_name" {
  command = plan
  variables {
    country = "Germany"
  }
  expect_failures = [var.country]
}

run "an_operator_by_name" {
  command = plan
  variables {
    operator_country = "de"
  }
  expect_failures = [var.operator_country]
}

run "a_cookie_secret_from_nowhere" {
  command = plan
  variables {
    dns_cookie_secret = {}
  }
  expect_failures = [var.dns_cookie_secret]
}

run "overrides_that_are_none" {
  command = plan
  variables {
    geoip_overrides = "{"
  }
  expect_failures = [var.geoip_overrides]
}

run "no_package" {
  command = plan
  variables {
    package = {}
  }
  expect_failures = [var.package]
}

run "two_packages" {
  command = plan
  variables {
    package = { version = "0.1.0", url = "https://example.com/gtm.whl", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  }
  expect_failures = [var.package]
}

run "a_range_of_versions" {
  command = plan
  variables {
    package = { version = ">=0.1" }
  }
  expect_failures = [var.package]
}

run "a_wheel_without_its_sum" {
  command = plan
  variables {
    package = { url = "https://example.com/gtm.whl" }
  }
  expect_failures = [var.package]
}

run "a_wheel_in_the_clear" {
  command = plan
  variables {
    package = { url = "http://example.com/gtm.whl", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  }
  expect_failures = [var.package]
}

run "a_secret_among_settings" {
  command = plan
  variables {
    environment = { GTM_TOKEN = "gtm_x" }
  }
  expect_failures = [var.environment]
}

run "a_setting_of_two_lines" {
  command = plan
  variables {
    environment = { GTM_LOG_LEVEL = "a\nb" }
  }
  expect_failures = [var.environment]
}

run "a_section_among_unit_settings" {
  command = plan
  variables {
    unit_settings = ["[Install]"]
  }
  expect_failures = [var.unit_settings]
}

run "no_time_to_start" {
  command = plan
  variables {
    start_timeout = 0
  }
  expect_failures = [var.start_timeout]
}

run "two_geoip_databases" {
  command = plan
  variables {
    geoip_db = { path = "/a.mmdb", url = "https://example.com/a.mmdb" }
  }
  expect_failures = [var.geoip_db]
}

run "a_geoip_database_in_the_clear" {
  command = plan
  variables {
    geoip_db = { url = "http://example.com/a.mmdb" }
  }
  expect_failures = [var.geoip_db]
}

run "a_sum_that_is_none" {
  command = plan
  variables {
    geoip_db = { url = "https://example.com/a.mmdb", sha256 = "abc" }
  }
  expect_failures = [var.geoip_db]
}

run "no_token" {
  command = plan
  variables {
    token_file = null
  }
  expect_failures = [output.user_data, output.script]
}

run "two_tokens" {
  command = plan
  variables {
    token_command = "cat /run/token"
  }
  expect_failures = [output.user_data, output.script]
}

run "a_token_over_http" {
  command = plan
  variables {
    control_url = "http://control.internal:8080"
  }
  expect_failures = [output.user_data, output.script]
}
