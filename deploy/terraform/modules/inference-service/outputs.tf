output "name" {
  description = "The service's name. Refer to it by this in residency rules, so that they come after it and go before it."
  value       = gtm_service.this.name
}

output "regions" {
  description = "Its members, in the order of failover."
  value       = [for m in gtm_service.this.members : m.region]
}

output "hostnames" {
  description = "Its host names."
  value       = [for h in var.hostnames : h.name]
}

output "spillover_rules" {
  description = "Names of its spillover rules, by `FROM-to-TO`."
  value       = { for key, rule in gtm_spillover_rule.this : key => rule.name }
}
