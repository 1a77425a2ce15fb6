# What the module refuses, and what it takes: `terraform test`.

variables {
  database_url_file = "/run/secrets/gtm-database"
  package           = { version = "0.1.0" }
}

run "as_little_as_can_be" {
  command = plan
  assert {
    condition     = output.environment.GTM_BIND == "127.0.0.1" && output.environment.GTM_CONTROL_PORT == "8080"
    error_message = "it does not listen on loopback alone"
  }
  assert {
    condition     = strcontains(output.unit, "gtm control\n") && strcontains(output.unit, "CapabilityBoundingSet=\n")
    error_message = "the unit is not as it should be"
  }
}

run "a_url_in_the_clear" {
  command = plan
  variables {
    database_url_file = null
    database_url      = "postgresql://gtm:pw@db/gtm"
  }
  assert {
    condition     = strcontains(nonsensitive(output.script), "gtm:pw@db") && !strcontains(output.unit, "gtm:pw@db")
    error_message = "the URL is not where it belongs"
  }
}

run "people" {
  command = plan
  variables {
    dashboard_url      = "https://gtm.example.com"
    oidc               = { issuer = "https://id.example.com", client_id = "gtm", roles = ["viewer=group:staff"] }
    oidc_client_secret = { file = "/run/oidc" }
  }
  assert {
    condition     = output.environment.GTM_OIDC_ROLES == "viewer=group:staff"
    error_message = "roles are missing"
  }
}

run "a_ca_of_the_database" {
  command = plan
  variables {
    database_ca = "-----BEGIN CERTIFICATE-----\n"
  }
  assert {
    condition     = output.environment.PGSSLMODE == "verify-full"
    error_message = "the certificate would not be checked"
  }
}

run "a_url_as_file" {
  command = plan
  variables {
    database_url_file = "postgresql://db/gtm"
  }
  expect_failures = [var.database_url_file]
}

run "a_command_of_two_lines" {
  command = plan
  variables {
    database_url_file    = null
    database_url_command = "a\nb"
  }
  expect_failures = [var.database_url_command]
}

run "another_database" {
  command = plan
  variables {
    database_url_file = null
    database_url      = "mysql://db/gtm"
  }
  expect_failures = [var.database_url]
}

run "a_path_as_certificate" {
  command = plan
  variables {
    database_ca = "/etc/ca.pem"
  }
  expect_failures = [var.database_ca]
}

run "a_relative_file" {
  command = plan
  variables {
    admin_token = { file = "token" }
  }
  expect_failures = [var.admin_token]
}

run "a_name_as_address" {
  command = plan
  variables {
    addresses = ["localhost"]
  }
  expect_failures = [var.addresses]
}

run "no_port" {
  command = plan
  variables {
    port = 0
  }
  expect_failures = [var.port]
}

run "a_dashboard_that_is_no_url" {
  command = plan
  variables {
    dashboard_url = "gtm.example.com"
  }
  expect_failures = [var.dashboard_url]
}

run "a_key_from_nowhere" {
  command = plan
  variables {
    dnssec_key = {}
  }
  expect_failures = [var.dnssec_key]
}

run "a_provider_in_the_clear" {
  command = plan
  variables {
    dashboard_url = "https://gtm.example.com"
    oidc          = { issuer = "http://id.example.com", client_id = "gtm", roles = ["viewer=group:staff"] }
  }
  expect_failures = [var.oidc]
}

run "a_client_secret_from_nowhere" {
  command = plan
  variables {
    oidc_client_secret = { file = "/a", command = "b" }
  }
  expect_failures = [var.oidc_client_secret]
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

run "no_database" {
  command = plan
  variables {
    database_url_file = null
  }
  expect_failures = [output.user_data, output.script]
}

run "two_databases" {
  command = plan
  variables {
    database_url_command = "cat /run/url"
  }
  expect_failures = [output.user_data, output.script]
}

run "people_who_find_nothing" {
  command = plan
  variables {
    oidc = { issuer = "https://id.example.com", client_id = "gtm", roles = ["viewer=group:staff"] }
  }
  expect_failures = [output.user_data, output.script]
}
