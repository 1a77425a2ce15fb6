# What clients ask for. The members are the same everywhere: where a request may go is for the rules to say.

resource "gtm_zone" "demo" {
  name         = "demo.test"
  primary_ns   = "ns1.demo.test"
  hostmaster   = "hostmaster.demo.test"
  name_servers = [{ name = "ns1.demo.test", ipv4 = ["127.0.0.1"] }]
  ttl          = 300
  minimum      = 30

  records = [
    { name = "www", type = "CNAME", data = ["chat"] },
    { name = "@", type = "TXT", data = ["\"v=spf1 -all\""] },
  ]
}

resource "gtm_service" "demo" {
  for_each = {
    chat    = "Chat (clients in the EEA are served in the EEA only)"
    web     = "Web (no rule)"
    records = "Health records (pinned to Germany)"
  }

  name            = each.key
  display_name    = each.value
  hostnames       = [{ name = "${each.key}.${gtm_zone.demo.name}" }]
  zone            = gtm_zone.demo.name
  service_time_ms = 400
  members         = [for region in local.everywhere : { region = gtm_region.demo[region].name }]
  refusal         = { ipv4 = ["127.0.1.8"] }

  # Keys arrive, which clients drop on redirects; an edge outside of Germany carries none of the clinic's.
  answer = each.key == "records" ? "carry" : "redirect"
}

resource "gtm_tenant" "clinic" {
  name         = "clinic"
  display_name = "A German clinic"
}

resource "gtm_tenant" "acme" {
  name         = "acme"
  display_name = "A company without rules of its own"
}

resource "gtm_data_class" "health" {
  name         = "health"
  display_name = "Health data"
}

resource "gtm_data_class" "public" {
  name         = "public"
  display_name = "Public data"
}
