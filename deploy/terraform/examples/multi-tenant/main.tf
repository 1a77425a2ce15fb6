# One service for tenants under different law, each with a host name of its own, and assertions about where each of them is
# served, which Terraform evaluates in every plan and apply.
#
#   sparkasse   a bank in Munich: all its requests stay in the EEA, wherever its clients are (GDPR, Art. 3(1))
#   clinic      a hospital in Berlin: its health data stay in Germany, on machines run from the EEA
#   acme        a company in New York: only its people in the EEA are under the GDPR (Art. 3(2))

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
  workspace          = "multi-tenant"
  allow_fence_change = var.allow_fence_change
}

variable "allow_fence_change" {
  description = "Why a change may let requests go where a residency rule kept them from, such as `terraform destroy` does. Needs a token of role fence-admin."
  type        = string
  default     = null
}

module "frankfurt" {
  source = "../../modules/region"

  name             = "frankfurt"
  city             = "Frankfurt"
  operator_country = "DE"
  endpoints        = [{ url = "https://frankfurt.example.com", ipv4 = ["192.0.2.10"] }]
  capacity         = { outstanding = 512 }
}

module "berlin" {
  source = "../../modules/region"

  name             = "berlin"
  city             = "Berlin"
  operator_country = "DE"
  endpoints        = [{ url = "https://berlin.example.com", ipv4 = ["192.0.2.40"] }]
  capacity         = { outstanding = 256 }
}

module "dublin" {
  source = "../../modules/region"

  name             = "dublin"
  city             = "Dublin"
  operator_country = "US"
  endpoints        = [{ url = "https://dublin.example.com", ipv4 = ["192.0.2.20"] }]
  capacity         = { outstanding = 512 }
}

module "ashburn" {
  source = "../../modules/region"

  name             = "ashburn"
  city             = "Ashburn"
  operator_country = "US"
  endpoints        = [{ url = "https://ashburn.example.com", ipv4 = ["192.0.2.30"] }]
  capacity         = { outstanding = 1024 }
}

resource "gtm_tenant" "all" {
  for_each = {
    sparkasse = { country = "DE", weight = 2 }
    clinic    = { country = "DE", weight = 1 }
    acme      = { country = "US", weight = 1 }
  }

  name    = each.key
  country = each.value.country
  weight  = each.value.weight
}

resource "gtm_data_class" "health" {
  name         = "health"
  display_name = "Health data"
}

resource "gtm_data_class" "other" {
  name         = "other"
  display_name = "Anything else"
}

resource "gtm_zone" "example" {
  name         = "gtm.example.com"
  primary_ns   = "ns1.gtm.example.com"
  hostmaster   = "hostmaster.example.com"
  name_servers = [{ name = "ns1.gtm.example.com", ipv4 = ["192.0.2.53"] }]
}

module "chat" {
  source = "../../modules/inference-service"

  name            = "chat"
  regions         = [module.frankfurt.name, module.berlin.name, module.dublin.name, module.ashburn.name]
  zone            = gtm_zone.example.name
  refusal         = { ipv4 = ["192.0.2.99"] }
  service_time_ms = 4000

  # DNS states no tenant; a host name does. What a name leaves open counts as a match for every rule, so each says all.
  hostnames = [
    { name = "sparkasse.${gtm_zone.example.name}", tenant = gtm_tenant.all["sparkasse"].name, data_class = gtm_data_class.other.name },
    { name = "clinic.${gtm_zone.example.name}", tenant = gtm_tenant.all["clinic"].name, data_class = gtm_data_class.health.name },
    { name = "acme.${gtm_zone.example.name}", tenant = gtm_tenant.all["acme"].name, data_class = gtm_data_class.other.name },
  ]
}

module "gdpr" {
  source = "../../modules/gdpr"

  services   = [module.chat.name]
  applies_to = "people_and_tenants"
  scope      = "eea"
}

resource "gtm_residency_rule" "health" {
  name = "health"
  match = {
    services     = [module.chat.name]
    data_classes = [gtm_data_class.health.name]
  }
  allow = {
    jurisdictions          = ["DE"]
    operator_jurisdictions = ["EEA"]
  }
  legal_basis = "Regulation (EU) 2016/679 (GDPR) Art. 9 (special categories of personal data); Fünftes Buch Sozialgesetzbuch (SGB V) § 393, narrowed to Germany and to operators in the EEA by contract."
}

locals {
  # Who asks, and all the regions in which the law lets them be served. With `host` as by DNS, whose names say who asks.
  expected = {
    "the bank's clients in Munich"    = { tenant = "sparkasse", data_class = "other", country = "DE", regions = ["berlin", "dublin", "frankfurt"] }
    "the bank's clients in New York"  = { tenant = "sparkasse", data_class = "other", country = "US", regions = ["berlin", "dublin", "frankfurt"] }
    "the clinic's patients abroad"    = { tenant = "clinic", data_class = "health", country = "US", regions = ["berlin", "frankfurt"] }
    "the same over DNS"               = { host = "clinic.gtm.example.com", country = "US", regions = ["berlin", "frankfurt"] }
    "acme's people in Paris"          = { tenant = "acme", data_class = "other", country = "FR", regions = ["berlin", "dublin", "frankfurt"] }
    "acme's people in New York"       = { tenant = "acme", data_class = "other", country = "US", regions = ["ashburn", "berlin", "dublin", "frankfurt"] }
    "who says nothing, from New York" = { country = "US", regions = ["berlin", "frankfurt"] }
  }

  # What the law allows does not change with health and load, as the region chosen does.
  wrong = [
    for who, route in data.gtm_route.expected :
    "${who}: the rules (${join(", ", route.rules)}) allow ${join(", ", route.allowed_regions)}; expected ${join(", ", local.expected[who].regions)}"
    if route.allowed_regions != toset(local.expected[who].regions)
  ]
}

# Data sources of their own, for one inside of a check counts as a change of every plan (`plan -detailed-exitcode`).
data "gtm_route" "expected" {
  for_each = local.expected

  service    = module.chat.name
  tenant     = try(each.value.tenant, null)
  data_class = try(each.value.data_class, null)
  host       = try(each.value.host, null)
  over       = try(each.value.host, null) == null ? "http" : "dns"
  country    = each.value.country

  # The rules have to be there before they are asked.
  depends_on = [module.gdpr, gtm_residency_rule.health]
}

check "fences" {
  assert {
    condition     = length(local.wrong) == 0
    error_message = join("\n", local.wrong)
  }
}

output "served_in" {
  description = "Where the law lets each of them be served."
  value       = { for who, route in data.gtm_route.expected : who => sort(route.allowed_regions) }
}
