# Accelerators that serve people by day and train by night. gtm has no timetable: it follows demand and capacity second by
# second. What goes by the clock is how many accelerators serve, so this is applied once an hour:
#
#   17 * * * * terraform apply -auto-approve
#
# A region that goes to sleep keeps `night_share` of its accelerators; what does not fit there spills to regions that are
# awake. Control refuses to take away capacity that present demand needs (safety rule `capacity`): then the region stays as
# it is, and the next hour tries again.

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
  workspace          = "follow-the-sun"
  allow_fence_change = var.allow_fence_change
}

variable "allow_fence_change" {
  description = "Why a change may delete much at once, such as `terraform destroy` does. Needs a token of role fence-admin."
  type        = string
  default     = null
}

variable "utc_hour" {
  description = "The hour to plan for, 0 to 23 (UTC). Left out: now."
  type        = number
  default     = null

  validation {
    condition     = var.utc_hour == null ? true : contains(range(24), var.utc_hour)
    error_message = "utc_hour: it is a whole number from 0 to 23."
  }
}

variable "night_share" {
  description = "The share of a region's accelerators that serves at night."
  type        = number
  default     = 0.25

  validation {
    condition     = var.night_share > 0 && var.night_share <= 1
    error_message = "night_share: it is above 0 and 1 at most: regions asleep keep serving."
  }
}

locals {
  hour = var.utc_hour != null ? var.utc_hour : tonumber(formatdate("h", plantimestamp()))

  # Hours from UTC, without summer time: an hour more or less of day does not matter here.
  fleets = {
    frankfurt = { city = "Frankfurt", from_utc = 1, accelerators = 64, number = 1 }
    ashburn   = { city = "Ashburn", from_utc = -5, accelerators = 96, number = 2 }
    tokyo     = { city = "Tokyo", from_utc = 9, accelerators = 64, number = 3 }
  }

  # Awake from 8 to 20 o'clock, so that one of the three always is.
  awake = {
    for name, fleet in local.fleets : name => contains(range(8, 20), (local.hour + fleet.from_utc + 24) % 24)
  }
}

module "region" {
  source   = "../../modules/region"
  for_each = local.fleets

  name      = each.key
  city      = each.value.city
  endpoints = [{ url = "https://${each.key}.example.com", ipv4 = ["192.0.2.${each.value.number}"] }]
  models    = ["llama-3.1-70b"]

  # A model server takes 8 accelerators, and holds 64 requests at once.
  accelerators = {
    h100 = {
      count      = local.awake[each.key] ? each.value.accelerators : ceil(each.value.accelerators * var.night_share)
      per_server = 8
      slots      = 64
    }
  }
}

module "chat" {
  source = "../../modules/inference-service"

  name            = "chat"
  model           = "llama-3.1-70b"
  regions         = [for name in ["frankfurt", "ashburn", "tokyo"] : module.region[name].name]
  service_time_ms = 8000

  # What a full region may send on, and where to; no farther than answers may begin later by a quarter of a second.
  spillover = {
    (module.region["frankfurt"].name) = { (module.region["ashburn"].name) = 0.6, (module.region["tokyo"].name) = 0.3 }
    (module.region["ashburn"].name)   = { (module.region["frankfurt"].name) = 0.6, (module.region["tokyo"].name) = 0.3 }
    (module.region["tokyo"].name)     = { (module.region["ashburn"].name) = 0.5, (module.region["frankfurt"].name) = 0.3 }
  }
  spillover_max_added_latency_ms = 250
}

output "awake" {
  description = "The regions in which it is day."
  value       = sort([for name, awake in local.awake : name if awake])
}

output "slots" {
  description = "Requests at once, by region."
  value       = { for name, region in module.region : name => region.capacity.outstanding }
}
