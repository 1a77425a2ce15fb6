variable "name" {
  description = "The service's name, by which clients, rules and balancers refer to it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.name))
    error_message = "name: `${var.name}` is no name: write 1 to 63 lower-case letters, digits and inner hyphens, such as chat."
  }
}

variable "display_name" {
  description = "For people."
  type        = string
  default     = null
}

variable "regions" {
  description = "The regions that serve it. Their order is that of failover, and for clients whose location is unknown. Refer to resources or module outputs (`module.frankfurt.name`), so that regions are made first."
  type        = list(string)

  validation {
    condition     = length(var.regions) > 0
    error_message = "regions: a service needs one at least."
  }
  validation {
    condition     = length(distinct(var.regions)) == length(var.regions)
    error_message = "regions: one of them is named twice: ${join(", ", var.regions)}."
  }
}

variable "model" {
  description = "The model it needs: only regions whose `models` name it are candidates. Left out: any region."
  type        = string
  default     = null
}

variable "capacity" {
  description = "What a region holds for this service alone, within its own capacity, by region: `outstanding` (requests at once), `requests_per_second`."
  type        = map(map(number))
  default     = {}

  validation {
    condition     = length(setsubtract(flatten([for one in var.capacity : try(keys(one), [])]), ["outstanding", "requests_per_second"])) == 0
    error_message = "capacity: there is no field `${join("`, `", setsubtract(flatten([for one in var.capacity : try(keys(one), [])]), ["outstanding", "requests_per_second"]))}`; the fields are `outstanding` and `requests_per_second`."
  }
  validation {
    condition     = alltrue([for c in var.capacity : try(c.outstanding, null) != null || try(c.requests_per_second, null) != null])
    error_message = "capacity: ${join(", ", [for region, c in var.capacity : region if try(c.outstanding, null) == null && try(c.requests_per_second, null) == null])} has neither `outstanding` nor `requests_per_second`: state one of them, or leave the region out."
  }
}

variable "weights" {
  description = "Shares of the regions, by region, relative to each other; regions left out have 1. 0: only when no other is usable. With any, `steering` is `weighted`."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for w in var.weights : w >= 0])
    error_message = "weights: they are numbers from 0."
  }
}

variable "canary" {
  description = "A region that gets `share` of the clients that may be served there, always the same ones, and no others while another region is usable: for a new region, or one that runs a new version of the model."
  type        = any
  default     = null

  validation {
    condition     = length(setsubtract(try(keys(var.canary), []), ["region", "share"])) == 0
    error_message = "canary: there is no field `${join("`, `", setsubtract(try(keys(var.canary), []), ["region", "share"]))}`; the fields are `region` and `share`."
  }
  validation {
    condition     = var.canary == null ? true : try(var.canary.region != null && var.canary.share > 0 && var.canary.share <= 1, false)
    error_message = "canary: it has a `region` and a `share`, and `share` is above 0 and 1 at most: 0.05 is every twentieth client. To end a canary, leave it out."
  }
}

variable "steering" {
  description = "How regions inside the fence are ordered: `latency`, `geo`, `weighted`, `failover`. Left out: `weighted` where there are `weights`, else `latency`."
  type        = string
  default     = null

  validation {
    condition     = var.steering == null ? true : contains(["latency", "geo", "weighted", "failover"], var.steering)
    error_message = "steering: it is latency, geo, weighted or failover."
  }
}

variable "hostnames" {
  description = "Host names by which DNS and redirects find the service; each may state whose requests come by it (`tenant`), and of which data (`data_class`). They need `zone` and `refusal`."
  type        = list(map(string))
  default     = []

  validation {
    condition     = length(setsubtract(flatten([for one in var.hostnames : try(keys(one), [])]), ["name", "tenant", "data_class"])) == 0
    error_message = "hostnames: there is no field `${join("`, `", setsubtract(flatten([for one in var.hostnames : try(keys(one), [])]), ["name", "tenant", "data_class"]))}`; the fields are `name`, `tenant` and `data_class`."
  }
  validation {
    condition     = length(distinct([for h in var.hostnames : lower(trimsuffix(try(h.name, ""), "."))])) == length(var.hostnames)
    error_message = "hostnames: one of them is there twice: ${join(", ", [for h in var.hostnames : try(h.name, "-")])}."
  }
}

variable "zone" {
  description = "The zone that the host names lie in: refer to it (`gtm_zone.main.name`)."
  type        = string
  default     = null
}

variable "refusal" {
  description = "Where DNS sends clients that may not be served: addresses of a server of yours that says why, in every family in which regions answer."
  type        = map(set(string))
  default     = {}

  validation {
    condition     = length(setsubtract(try(keys(var.refusal), []), ["ipv4", "ipv6"])) == 0
    error_message = "refusal: there is no field `${join("`, `", setsubtract(try(keys(var.refusal), []), ["ipv4", "ipv6"]))}`; the fields are `ipv4` and `ipv6`."
  }
}

variable "alpn" {
  description = "Protocols beside http/1.1 that every region speaks, for HTTPS records of the host names: [\"h2\"]. Left out: no such records."
  type        = list(string)
  default     = null
}

variable "ttl" {
  description = "Seconds for which answers may be kept. Left out: 30."
  type        = number
  default     = null
}

variable "min_ttl" {
  description = "The same while traffic moves or a region drains. Left out: 5."
  type        = number
  default     = null
}

variable "affinity" {
  description = "What keeps a client on its region: `none`, `client_network`, `key`. Left out: `none`."
  type        = string
  default     = null
}

variable "priority" {
  description = "Of requests that do not state their own: `real_time`, `near_real_time`, `batch` (shed first). Left out: `real_time`."
  type        = string
  default     = null
}

variable "service_time_ms" {
  description = "How long a request occupies its slot, as far as no load report says it. Without it, and without reports, slots bound nothing."
  type        = number
  default     = null

  validation {
    condition     = var.service_time_ms == null ? true : var.service_time_ms > 0
    error_message = "service_time_ms: it is above 0: milliseconds from a request's begin to the end of its answer."
  }
}

variable "on_overload" {
  description = "What becomes of requests that the plan has no capacity for: `shed`, `queue`. Left out: `shed`."
  type        = string
  default     = null
}

variable "on_unusable" {
  description = "What to do when the fence holds regions, but none that is usable: `refuse`, `ignore_health`. Left out: `refuse`."
  type        = string
  default     = null
}

variable "exploration" {
  description = "The share of requests spread over the other eligible regions, to measure the way there. Left out: 0."
  type        = number
  default     = null
}

variable "handoff" {
  description = "`sign`: edges sign what they decided, for the region's balancer to verify. Left out: `none`."
  type        = string
  default     = null
}

variable "push" {
  description = "How a balancer without room sends a request to a peer region: `carry`, `redirect`, `never`. Left out: `carry`."
  type        = string
  default     = null
}

variable "spillover" {
  description = <<-EOT
    How much of a region's demand may be served elsewhere when it is full: from region → to region → share, 0 to 1. A region
    that is not in it spills freely inside the fence; one that is, only to where it says. Spillover rules bound all services of
    a region together: give the matrix to one module only.
  EOT
  type        = map(map(number))
  default     = {}

  validation {
    condition     = alltrue([for to in var.spillover : alltrue([for share in to : share >= 0 && share <= 1])])
    error_message = "spillover: shares are between 0 and 1 (0.3 is 30 %)."
  }
  validation {
    condition     = alltrue([for from, to in var.spillover : !contains(keys(to), from)])
    error_message = "spillover: ${join(", ", [for from, to in var.spillover : from if contains(keys(to), from)])} spills to itself: what it serves itself needs no rule."
  }
  validation {
    condition     = alltrue([for to in var.spillover : length(to) > 0])
    error_message = "spillover: ${join(", ", [for from, to in var.spillover : from if length(to) == 0])} leads nowhere: leave it out to let it spill freely, or name a region with share 0 to keep its demand there."
  }
}

variable "spillover_max_added_latency_ms" {
  description = "No spilling to where it takes longer by more than this, compared with the region spilled from. Left out: no bound."
  type        = number
  default     = null
}
