output "script" {
  description = "The set-up, as a shell script."
  value       = local.script
  sensitive   = true
}

output "user_data" {
  description = "The same as cloud-init's `#cloud-config`."
  value       = local.user_data
  sensitive   = true
}
