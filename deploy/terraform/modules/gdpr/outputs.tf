output "rules" {
  description = "Names of the rules, by `everyone`, `people`, `establishment`."
  value       = { for rule, made in gtm_residency_rule.this : rule => made.name }
}

output "jurisdictions" {
  description = "Where the rules let requests be served, apart from `transfers`."
  value       = local.jurisdictions
}

output "legal_basis" {
  description = "What is handed out with refusals, by rule."
  value       = { for rule, made in gtm_residency_rule.this : rule => made.legal_basis }
}
