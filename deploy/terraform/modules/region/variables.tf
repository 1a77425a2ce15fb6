variable "name" {
  description = "The region's name, by which services and rules refer to it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.name))
    error_message = "name: `${var.name}` is no name: write 1 to 63 lower-case letters, digits and inner hyphens, such as eu-central."
  }
}

variable "display_name" {
  description = "For people."
  type        = string
  default     = null
}

variable "city" {
  description = "Where the machines stand, as a city with data centres (`provider::gtm::city`): in place of `country`, `lat` and `lon`, or of those of them that are left out."
  type        = string
  default     = null
}

variable "country" {
  description = "Where the machines stand: ISO 3166-1 alpha-2. The region lies in this country's jurisdictions. Left out: the city's."
  type        = string
  default     = null

  validation {
    condition     = var.country == null || can(regex("^[A-Z]{2}$", var.country))
    error_message = "country: `${coalesce(var.country, "-")}` is no country code: write ISO 3166-1 alpha-2 in upper case, such as DE (the United Kingdom's is GB)."
  }
}

variable "lat" {
  description = "Degrees north. Left out: the city's."
  type        = number
  default     = null

  validation {
    condition     = var.lat == null ? true : abs(var.lat) <= 90
    error_message = "lat: it is between -90 and 90. Are latitude and longitude swapped?"
  }
}

variable "lon" {
  description = "Degrees east. Left out: the city's."
  type        = number
  default     = null

  validation {
    condition     = var.lon == null ? true : abs(var.lon) <= 180
    error_message = "lon: it is between -180 and 180."
  }
}

variable "subdivision" {
  description = "ISO 3166-2, such as US-VA: for people, rules do not look at it."
  type        = string
  default     = null
}

variable "operator_country" {
  description = "Where the company that runs the region is established, wherever the machines stand. Left out: unknown, which no rule that allows by operator takes."
  type        = string
  default     = null

  validation {
    condition     = var.operator_country == null || can(regex("^[A-Z]{2}$", var.operator_country))
    error_message = "operator_country: write ISO 3166-1 alpha-2 in upper case, such as DE, or leave it out if it is unknown."
  }
}

variable "endpoints" {
  description = "The region's ingresses: the URL that redirects and look-ups hand out, and addresses (or a canonical name) for DNS."
  type        = any

  validation {
    condition     = length(setsubtract(flatten([for one in var.endpoints : try(keys(one), [])]), ["url", "ipv4", "ipv6", "cname"])) == 0
    error_message = "endpoints: there is no field `${join("`, `", setsubtract(flatten([for one in var.endpoints : try(keys(one), [])]), ["url", "ipv4", "ipv6", "cname"]))}`; the fields are `url`, `ipv4`, `ipv6` and `cname`."
  }
  validation {
    condition     = length(var.endpoints) > 0
    error_message = "endpoints: a region needs one at least, such as { url = \"https://eu.example.com\", ipv4 = [\"192.0.2.10\"] }."
  }
  validation {
    condition     = alltrue([for e in var.endpoints : can(regex("^(?i:https?)://", e.url))])
    error_message = "endpoints: each `url` begins with http:// or https://."
  }
}

variable "models" {
  description = "Names of the models that the region serves. Services that need another go elsewhere."
  type        = set(string)
  default     = []
}

variable "accelerators" {
  description = <<-EOT
    What serves here, by kind of machine; capacity follows from it. `count` accelerators, of which a model server takes
    `per_server` (tensor × pipeline parallelism). Of one model server: `slots` (requests at once, vLLM's --max-num-seqs), and
    either `requests_per_second` or `tokens_per_second` (generated, all its requests together; needs tokens_per_request).
  EOT
  type        = map(map(number))
  default     = {}

  validation {
    condition     = length(setsubtract(flatten([for one in var.accelerators : try(keys(one), [])]), ["count", "per_server", "slots", "requests_per_second", "tokens_per_second"])) == 0
    error_message = "accelerators: there is no field `${join("`, `", setsubtract(flatten([for one in var.accelerators : try(keys(one), [])]), ["count", "per_server", "slots", "requests_per_second", "tokens_per_second"]))}`; the fields are `count`, `per_server`, `slots`, `requests_per_second` and `tokens_per_second`."
  }
  validation {
    condition     = alltrue([for a in var.accelerators : try(a.count, -1) >= 0 && try(floor(a.count) == a.count, false) && coalesce(try(a.per_server, null), 1) >= 1 && floor(coalesce(try(a.per_server, null), 1)) == coalesce(try(a.per_server, null), 1)])
    error_message = "accelerators: `count` is a whole number from 0, `per_server` one from 1: accelerators are not divided between model servers here."
  }
  validation {
    condition     = alltrue([for a in var.accelerators : try(a.count, 0) == 0 || try(a.count, 0) >= coalesce(try(a.per_server, null), 1)])
    error_message = "accelerators: ${join(", ", [for name, a in var.accelerators : "${name} has ${a.count}" if try(a.count, 0) > 0 && try(a.count, 0) < coalesce(try(a.per_server, null), 1)])}, which is less than one model server takes (`per_server`): no server could start."
  }
  validation {
    condition = alltrue([for a in var.accelerators : alltrue([
      for bound in [try(a.slots, null), try(a.requests_per_second, null), try(a.tokens_per_second, null)] : bound == null ? true : bound >= 0
    ]) && (try(a.slots, null) == null ? true : floor(try(a.slots, null)) == try(a.slots, null))])
    error_message = "accelerators: `slots` is a whole number from 0; `requests_per_second` and `tokens_per_second` are numbers from 0."
  }
  validation {
    condition     = alltrue([for a in var.accelerators : try(a.slots, null) != null || try(a.requests_per_second, null) != null || try(a.tokens_per_second, null) != null])
    error_message = "accelerators: ${join(", ", [for name, a in var.accelerators : name if try(a.slots, null) == null && try(a.requests_per_second, null) == null && try(a.tokens_per_second, null) == null])} says nothing of what one model server takes: state `slots`, `requests_per_second` or `tokens_per_second`."
  }
  validation {
    condition     = alltrue([for a in var.accelerators : try(a.requests_per_second, null) == null || try(a.tokens_per_second, null) == null])
    error_message = "accelerators: state either `requests_per_second` or `tokens_per_second` of a kind, not both: which of them holds?"
  }
  validation {
    condition = alltrue([
      for stated in [
        [for a in var.accelerators : try(a.slots, null) != null],
        [for a in var.accelerators : try(a.requests_per_second, null) != null || try(a.tokens_per_second, null) != null],
      ] : alltrue(stated) || !anytrue(stated)
    ])
    error_message = "accelerators: state slots of all kinds or of none, and likewise rates: a sum that leaves some out would bound the region to less than it takes."
  }
}

variable "tokens_per_request" {
  description = "How many tokens a request generates on average, to make requests of `tokens_per_second`."
  type        = number
  default     = null

  validation {
    condition     = var.tokens_per_request == null ? true : var.tokens_per_request > 0
    error_message = "tokens_per_request: it must be above 0."
  }
}

variable "capacity" {
  description = "Bounds that are known by themselves (`outstanding`: requests at once, `requests_per_second`). Each goes before what follows from `accelerators`."
  type        = map(number)
  default     = {}

  validation {
    condition     = length(setsubtract(try(keys(var.capacity), []), ["outstanding", "requests_per_second"])) == 0
    error_message = "capacity: there is no field `${join("`, `", setsubtract(try(keys(var.capacity), []), ["outstanding", "requests_per_second"]))}`; the fields are `outstanding` and `requests_per_second`."
  }
}

variable "reserve" {
  description = "The share of its capacity that no plan uses: for what comes between two plans. Left out: 0.1."
  type        = number
  default     = null
}

variable "spill_in" {
  description = "How much the region takes of other regions' demand. Left out: as much as it has capacity for."
  type        = map(number)
  default     = {}

  validation {
    condition     = length(setsubtract(try(keys(var.spill_in), []), ["max_share", "max_requests_per_second"])) == 0
    error_message = "spill_in: there is no field `${join("`, `", setsubtract(try(keys(var.spill_in), []), ["max_share", "max_requests_per_second"]))}`; the fields are `max_share` and `max_requests_per_second`."
  }
}

variable "slow_start" {
  description = "Seconds over which its traffic ramps up after a failure. Left out: 30."
  type        = number
  default     = null
}

variable "cost_weight" {
  description = "What a request costs here, relative to other regions; 1 more counts as 10 ms of latency. Left out: 1."
  type        = number
  default     = null
}

variable "drain_deadline" {
  description = "Seconds over which clients with affinity leave it once it drains. Left out: 300."
  type        = number
  default     = null
}

variable "probe" {
  description = "The health check of every endpoint. Left out: GET /healthz every 10 s by the protocol of the endpoints' URLs, which gtm's balancer answers."
  type        = any
  default     = {}

  validation {
    condition     = length(setsubtract(try(keys(var.probe), []), ["type", "port", "path", "host", "expected_status", "body_regex", "json_field", "json_value", "interval", "timeout", "up_threshold", "down_threshold", "verify_tls", "addresses"])) == 0
    error_message = "probe: there is no field `${join("`, `", setsubtract(try(keys(var.probe), []), ["type", "port", "path", "host", "expected_status", "body_regex", "json_field", "json_value", "interval", "timeout", "up_threshold", "down_threshold", "verify_tls", "addresses"]))}`; the fields are `type`, `port`, `path`, `host`, `expected_status`, `body_regex`, `json_field`, `json_value`, `interval`, `timeout`, `up_threshold`, `down_threshold`, `verify_tls` and `addresses`."
  }
  validation {
    condition     = try(var.probe.type, null) == null ? true : contains(["http", "https", "tcp"], var.probe.type)
    error_message = "probe: `type` is http, https or tcp; left out, it is as in the endpoints' URLs."
  }
  validation {
    condition     = try(var.probe.type, null) != "tcp" || (try(var.probe.body_regex, null) == null && try(var.probe.json_field, null) == null)
    error_message = "probe: tcp only connects: it takes neither `body_regex` nor `json_field`."
  }
  validation {
    condition     = (try(var.probe.json_field, null) == null) == (try(var.probe.json_value, null) == null)
    error_message = "probe: `json_field` and `json_value` are stated together: the field, and what it must equal."
  }
  validation {
    condition     = coalesce(try(var.probe.timeout, null), 3) <= coalesce(try(var.probe.interval, null), 10)
    error_message = "probe: `timeout` (3 s, if left out) is at most `interval` (10 s), both in seconds."
  }
}
