locals {
  # GDPR-ADEQUATE holds the countries whose decision is for all recipients or the private sector as a whole. Those for some
  # recipients only (US, CA) are no matter of where a region stands, but of who runs it: they stand in `transfers`.
  jurisdictions = { eea = ["EEA"], eea_and_adequacy = ["EEA-OR-ADEQUATE"] }[var.scope]

  scope_text = {
    eea              = "Requests are served in the European Economic Area"
    eea_and_adequacy = "Requests are served in the European Economic Area, or in a third country that the European Commission has decided to ensure an adequate level of protection (Art. 45)"
  }[var.scope]

  grounds = join("; ", [for region in sort(keys(var.transfers)) : "${region} (${var.transfers[region]})"])

  legal_bases = {
    for rule, law in {
      everyone      = ["Art. 3(1)", "personal data processed in the context of an establishment in the European Economic Area"]
      people        = ["Art. 3(2)", "personal data of people in the European Economic Area"]
      establishment = ["Art. 3(1)", "personal data processed in the context of the activities of tenants established in the European Economic Area"]
      } : rule => join(" ", compact([
        "Regulation (EU) 2016/679 (GDPR), ${law[0]} and Chapter V, Art. 44-46: ${law[1]} are transferred to third countries only on the conditions of that chapter.",
        "${local.scope_text}${length(var.transfers) > 0 ? "; elsewhere only in ${local.grounds}" : ""}.",
        length(var.exclude_jurisdictions) > 0 ? "Not in ${join(", ", sort(var.exclude_jurisdictions))}." : "",
        var.operators == "in_scope" ? "Regions are run by companies established there (Art. 48)." : "",
        var.note,
    ]))
  }

  located = {
    on_unknown_location  = var.on_unknown_location
    on_anonymous         = var.on_anonymous
    on_doubtful_location = var.on_doubtful_location
    max_accuracy_km      = var.max_accuracy_km
  }
  not_located = { for setting, _ in local.located : setting => null }

  rules = {
    for rule, made in {
      everyone = merge(local.not_located, {
        match = { client_jurisdictions = [], tenants = var.tenants, tenant_jurisdictions = [] }
      })
      people = merge(local.located, {
        match = { client_jurisdictions = ["EEA"], tenants = var.tenants, tenant_jurisdictions = [] }
      })
      # With both, a tenant that is named or established there matches.
      establishment = merge(local.not_located, {
        match = { client_jurisdictions = [], tenants = var.established_tenants, tenant_jurisdictions = ["EEA"] }
      })
    } : rule => made if contains({ everyone = ["everyone"], people = ["people"], people_and_tenants = ["people", "establishment"] }[var.applies_to], rule)
  }

  trusting = [
    for setting, value in { on_unknown_location = var.on_unknown_location, on_anonymous = var.on_anonymous, on_doubtful_location = var.on_doubtful_location } :
    setting if value != "match"
  ]
}

resource "gtm_residency_rule" "this" {
  for_each = local.rules

  name = "${var.name}-${each.key}"
  match = merge(each.value.match, {
    services     = var.services
    data_classes = var.data_classes
  })
  allow = {
    jurisdictions          = local.jurisdictions
    regions                = keys(var.transfers)
    operator_jurisdictions = var.operators == "in_scope" ? local.jurisdictions : []
  }
  deny                 = { jurisdictions = var.exclude_jurisdictions }
  mode                 = var.mode
  edges                = var.edges
  max_policy_age       = var.max_policy_age
  on_unknown_location  = each.value.on_unknown_location
  on_anonymous         = each.value.on_anonymous
  on_doubtful_location = each.value.on_doubtful_location
  max_accuracy_km      = each.value.max_accuracy_km
  legal_basis          = local.legal_bases[each.key]
  effective_from       = var.effective_from
  effective_until      = var.effective_until

  lifecycle {
    precondition {
      condition     = var.applies_to != "people_and_tenants" || length(var.tenants) == 0
      error_message = "`tenants` does not go with applies_to = \"people_and_tenants\": tenants established in the EEA are known by their `country`. Name others that have an establishment there in `established_tenants`."
    }
    precondition {
      condition     = var.applies_to == "people_and_tenants" || length(var.established_tenants) == 0
      error_message = "`established_tenants` go with applies_to = \"people_and_tenants\" alone; it is \"${var.applies_to}\"."
    }
    precondition {
      condition     = var.applies_to != "everyone" || (length(local.trusting) == 0 && var.max_accuracy_km == null)
      error_message = "With applies_to = \"everyone\" nobody looks at where clients are: leave out ${join(", ", concat(local.trusting, var.max_accuracy_km == null ? [] : ["max_accuracy_km"]))}."
    }
    precondition {
      condition     = var.on_unknown_location != "ignore" || (var.max_accuracy_km == null && var.on_doubtful_location == "match")
      error_message = "on_unknown_location = \"ignore\" lets go of all whom nobody can locate: beside it, max_accuracy_km and on_doubtful_location decide nothing. Leave one of them out."
    }
    precondition {
      condition     = var.operators != "in_scope" || length(var.transfers) == 0
      error_message = "operators = \"in_scope\" would take the regions of `transfers` out again, unless run from the EEA: leave one of them out."
    }
    precondition {
      condition     = try(timecmp(var.effective_from, var.effective_until) < 0, true)
      error_message = "The rules would end (${coalesce(var.effective_until, "-")}) before they begin (${coalesce(var.effective_from, "-")})."
    }
  }
}
