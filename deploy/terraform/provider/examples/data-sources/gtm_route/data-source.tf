data "gtm_route" "berlin" {
  service = "chat"
  city    = "Berlin"
}

# Asserted with every plan and apply: what the law allows does not go by today's traffic.
check "clients_in_germany_stay_in_the_eea" {
  assert {
    condition     = length(setsubtract(data.gtm_route.berlin.allowed_regions, ["eu-central", "eu-west"])) == 0
    error_message = join("\n", data.gtm_route.berlin.lines)
  }
}
