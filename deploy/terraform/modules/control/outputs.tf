output "user_data" {
  description = "cloud-init's `#cloud-config` that sets control up. Sensitive always, since it holds the database's URL if that was given."
  value       = module.machine.user_data
  sensitive   = true

  precondition {
    condition     = local.urls == 1
    error_message = "Say how control gets the database's URL, in one way: database_url_file or database_url_command (it is then in neither user data nor state), or database_url."
  }
  precondition {
    condition     = var.oidc == null || var.dashboard_url != null
    error_message = "oidc needs dashboard_url, the address that the identity provider sends people back to."
  }
}

output "script" {
  description = "The same as a shell script, for machines without cloud-init and to upgrade: run it as root, as often as you like."
  value       = module.machine.script
  sensitive   = true

  precondition {
    condition     = local.urls == 1 && (var.oidc == null || var.dashboard_url != null)
    error_message = "See the output user_data."
  }
}

output "unit" {
  description = "The systemd unit, `/etc/systemd/system/gtm-control.service`."
  value       = local.unit
}

output "environment" {
  description = "gtm's settings, as they stand in `/etc/gtm/control.env`. No secret is among them."
  value       = local.settings
}
