locals {
  steering = var.steering != null ? var.steering : length(var.weights) > 0 ? "weighted" : "latency"
  canary   = try(var.canary.region, null)

  # A rule for each share: rules that name several regions would bound them together.
  spills = merge([
    for from, to in var.spillover : { for region, share in to : "${from}-to-${region}" => { from = from, to = region, share = share } }
  ]...)

  named    = setunion(keys(var.capacity), keys(var.weights), keys(var.spillover), [for s in local.spills : s.to], local.canary == null ? [] : [local.canary])
  unserved = setsubtract(local.named, var.regions)
}

resource "gtm_service" "this" {
  name         = var.name
  display_name = var.display_name
  model        = var.model
  steering     = local.steering

  members = [
    for region in var.regions : {
      region   = region
      weight   = region == local.canary ? null : lookup(var.weights, region, null)
      share    = region == local.canary ? var.canary.share : null
      capacity = lookup(var.capacity, region, null)
    }
  ]

  hostnames    = var.hostnames
  zone         = var.zone
  refusal      = var.refusal
  https_record = var.alpn == null ? null : { alpn = var.alpn }
  ttl          = var.ttl
  min_ttl      = var.min_ttl

  affinity        = var.affinity
  priority        = var.priority
  service_time_ms = var.service_time_ms
  on_overload     = var.on_overload
  on_unusable     = var.on_unusable
  exploration     = var.exploration
  handoff         = var.handoff
  push            = var.push

  lifecycle {
    precondition {
      condition     = length(local.unserved) == 0
      error_message = "Service ${var.name}: ${join(", ", local.unserved)} stands in `capacity`, `weights`, `canary` or `spillover`, but not in `regions` (${join(", ", var.regions)})."
    }
    precondition {
      condition     = local.canary == null || length(var.regions) > 1
      error_message = "Service ${var.name} has a canary alone: all other clients need a region too."
    }
    precondition {
      condition     = local.canary == null || !contains(keys(var.weights), coalesce(local.canary, "-"))
      error_message = "Service ${var.name}: the canary has a share of all clients, and no weight beside it."
    }
    precondition {
      condition     = length(var.weights) == 0 || local.steering == "weighted"
      error_message = "Service ${var.name}: weights decide nothing under steering ${local.steering}: leave one of them out."
    }
    precondition {
      condition     = length(var.hostnames) == 0 || var.zone != null
      error_message = "Service ${var.name} has host names: say in which zone they lie (`zone = gtm_zone.main.name`)."
    }
    precondition {
      condition     = length(var.hostnames) == 0 || length(setunion(coalesce(try(var.refusal.ipv4, null), []), coalesce(try(var.refusal.ipv6, null), []))) > 0
      error_message = "Service ${var.name} has host names: DNS never refuses with an empty answer, so it needs `refusal` addresses, of a server that says why a client is not served."
    }
  }
}

resource "gtm_spillover_rule" "this" {
  for_each = local.spills

  name                 = "${var.name}-${each.key}"
  from_region          = each.value.from
  to_regions           = [each.value.to]
  max_share            = each.value.share
  max_added_latency_ms = var.spillover_max_added_latency_ms

  lifecycle {
    precondition {
      condition     = length("${var.name}-${each.key}") <= 63
      error_message = "The spillover rule's name `${var.name}-${each.key}` would have more than 63 characters: shorten the service's name, or write the rule as a gtm_spillover_rule of its own."
    }
  }
}
