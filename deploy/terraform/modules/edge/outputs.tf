output "user_data" {
  description = "cloud-init's `#cloud-config` that sets the edge up. Sensitive always, since it holds the token if that was given."
  value       = module.machine.user_data
  sensitive   = true

  precondition {
    condition     = local.tokens == 1
    error_message = "Say how the edge gets its token, in one way: token_file or token_command (it is then in neither user data nor state), or token."
  }
  precondition {
    condition     = !local.in_the_open
    error_message = "control_url is http to another machine, which would send the token in the clear: put TLS in front of control and use https, or set insecure_control = true where the network between is your own."
  }
}

output "script" {
  description = "The same as a shell script, for machines without cloud-init and to upgrade: run it as root, as often as you like."
  value       = module.machine.script
  sensitive   = true

  precondition {
    condition     = local.tokens == 1 && !local.in_the_open
    error_message = "See the output user_data."
  }
}

output "unit" {
  description = "The systemd unit, `/etc/systemd/system/gtm-edge.service`."
  value       = local.unit
}

output "environment" {
  description = "gtm's settings, as they stand in `/etc/gtm/edge.env`. No secret is among them."
  value       = local.settings
}
