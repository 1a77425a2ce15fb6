# Two regions, of which the second serves only while the first cannot: because its probes fail, it drains, or a rule rules
# it out. Clients come by host name, over DNS or redirects.
#
# How long a failure lasts for clients: down_threshold × interval of the probe until the region is down (10 s here), and the
# TTL until DNS clients ask again (20 s). Redirects follow at once.

terraform {
  required_version = ">= 1.8"

  required_providers {
    gtm = {
      source = "gtm/gtm"
    }
  }
}

# Where control is, and the token, stand in GTM_CONTROL_URL and GTM_TOKEN.
provider "gtm" {
  workspace          = "active-passive"
  allow_fence_change = var.allow_fence_change
}

variable "allow_fence_change" {
  description = "Why a change may delete a zone, or much at once, such as `terraform destroy` does. Needs a token of role fence-admin."
  type        = string
  default     = null
}

locals {
  probe = { interval = 5, timeout = 2, down_threshold = 2 }
}

module "frankfurt" {
  source = "../../modules/region"

  name      = "frankfurt"
  city      = "Frankfurt"
  endpoints = [{ url = "https://frankfurt.example.com", ipv4 = ["192.0.2.10"] }]
  probe     = local.probe
}

module "dublin" {
  source = "../../modules/region"

  name      = "dublin"
  city      = "Dublin"
  endpoints = [{ url = "https://dublin.example.com", ipv4 = ["192.0.2.20"] }]
  probe     = local.probe

  # It comes back from standing by at full strength: nothing has to warm up.
  slow_start = 0
}

resource "gtm_zone" "example" {
  name       = "gtm.example.com"
  primary_ns = "ns1.gtm.example.com"
  hostmaster = "hostmaster.example.com"
  name_servers = [
    { name = "ns1.gtm.example.com", ipv4 = ["192.0.2.53"] },
    { name = "ns2.gtm.example.com", ipv4 = ["198.51.100.53"] },
  ]
}

module "api" {
  source = "../../modules/inference-service"

  name      = "api"
  regions   = [module.frankfurt.name, module.dublin.name]
  steering  = "failover"
  hostnames = [{ name = "api.${gtm_zone.example.name}" }]
  zone      = gtm_zone.example.name
  refusal   = { ipv4 = ["192.0.2.99"] }
  ttl       = 20
}

# Where a client in Germany would go now. A data source of its own, for one inside of a check counts as a change of every
# plan (`plan -detailed-exitcode`).
data "gtm_route" "now" {
  service    = module.api.name
  country    = "DE"
  depends_on = [module.api]
}

# After an apply, and in every plan, Terraform warns while it is not the first region: also until edges have probed it.
check "frankfurt_serves" {
  assert {
    condition     = data.gtm_route.now.region == module.frankfurt.name
    error_message = "Service api is not served by frankfurt now: ${join("; ", data.gtm_route.now.lines)}"
  }
}
