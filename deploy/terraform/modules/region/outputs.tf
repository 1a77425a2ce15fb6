output "name" {
  description = "The region's name. Refer to it by this, so that services come after it and go before it."
  value       = gtm_region.this.name
}

output "country" {
  description = "Where it stands."
  value       = gtm_region.this.country
}

output "capacity" {
  description = "Requests at once and requests per second, as control has them; null: not bounded."
  value       = { outstanding = local.outstanding, requests_per_second = local.requests_per_second }
}

output "servers" {
  description = "How many model servers of each kind of accelerator were counted."
  value       = local.servers
}

output "idle_accelerators" {
  description = "Accelerators of each kind that make up no whole model server, and were not counted."
  value       = { for name, a in local.accelerators : name => a.count - local.servers[name] * a.per_server }
}
