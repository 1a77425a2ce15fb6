locals {
  city    = var.city == null ? null : provider::gtm::city(var.city)
  country = var.country != null ? var.country : try(local.city.country, null)
  lat     = var.lat != null ? var.lat : try(local.city.lat, null)
  lon     = var.lon != null ? var.lon : try(local.city.lon, null)

  # What is left out of a kind is null, and one accelerator makes a server.
  accelerators = {
    for name, a in var.accelerators : name => {
      count               = a.count
      per_server          = coalesce(try(a.per_server, null), 1)
      slots               = try(a.slots, null)
      requests_per_second = try(a.requests_per_second, null)
      tokens_per_second   = try(a.tokens_per_second, null)
    }
  }

  # Whole model servers only: accelerators that make up no server serve nobody.
  servers = { for name, a in local.accelerators : name => floor(a.count / a.per_server) }

  # What one model server finds time for, in requests a second; null: not stated.
  rates = {
    for name, a in local.accelerators : name => (
      a.requests_per_second != null ? a.requests_per_second :
      a.tokens_per_second == null || var.tokens_per_request == null ? null : a.tokens_per_second / var.tokens_per_request
    )
  }

  slots_stated = length(local.accelerators) > 0 && alltrue([for a in local.accelerators : a.slots != null])
  rates_stated = length(local.accelerators) > 0 && alltrue([for rate in local.rates : rate != null])

  outstanding = (
    try(var.capacity.outstanding, null) != null ? var.capacity.outstanding :
    local.slots_stated ? sum([for name, a in local.accelerators : local.servers[name] * a.slots]) : null
  )
  requests_per_second = (
    try(var.capacity.requests_per_second, null) != null ? var.capacity.requests_per_second :
    local.rates_stated ? sum([for name, rate in local.rates : local.servers[name] * rate]) : null
  )

  # gtm probes by http whatever the URL says, and on the URL's port: against https that would fail for ever.
  schemes    = distinct([for e in var.endpoints : lower(split(":", e.url)[0])])
  probe_type = try(var.probe.type, null) != null ? var.probe.type : local.schemes[0]
}

resource "gtm_region" "this" {
  name             = var.name
  display_name     = var.display_name != null ? var.display_name : try(local.city.name, null)
  country          = local.country
  operator_country = var.operator_country
  subdivision      = var.subdivision
  lat              = local.lat
  lon              = local.lon
  endpoints        = var.endpoints
  models           = var.models
  capacity         = { outstanding = local.outstanding, requests_per_second = local.requests_per_second }
  reserve          = var.reserve
  spill_in         = var.spill_in
  slow_start       = var.slow_start
  cost_weight      = var.cost_weight
  drain_deadline   = var.drain_deadline
  probe            = merge(var.probe, { type = local.probe_type })

  lifecycle {
    precondition {
      condition     = local.country != null && local.lat != null && local.lon != null
      error_message = "Region ${var.name}: say where it stands: `city`, or else `country`, `lat` and `lon`."
    }
    precondition {
      condition     = (var.lat == null) == (var.lon == null)
      error_message = "Region ${var.name}: `lat` and `lon` are stated together."
    }
    precondition {
      condition     = length(local.schemes) == 1 || try(var.probe.type, null) != null
      error_message = "Region ${var.name} has endpoints of http and of https: say by which they are probed (`probe = { type = ... }`)."
    }
    precondition {
      condition     = var.tokens_per_request != null || alltrue([for a in local.accelerators : a.tokens_per_second == null])
      error_message = "Region ${var.name} states `tokens_per_second`: say how many tokens a request generates (`tokens_per_request`), for capacity is counted in requests."
    }
  }
}
