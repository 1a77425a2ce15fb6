# An edge, as user data for any cloud or hypervisor.

module "edge" {
  source = "../.."

  control_url   = "https://control.example.com"
  name          = "fra-1"
  region        = "eu-central"
  package       = { version = "0.1.0" }
  token_command = "aws secretsmanager get-secret-value --secret-id gtm/fra-1 --query SecretString --output text"
  dns_addresses = ["192.0.2.53", "2001:db8::53"]
  workers       = 4
}

output "user_data" {
  value     = module.edge.user_data
  sensitive = true
}
