# Control behind a proxy that speaks TLS on the same machine, as user data for any cloud or hypervisor.

module "control" {
  source = "../.."

  package              = { version = "0.1.0" }
  database_url_command = "gcloud secrets versions access latest --secret gtm-database-url"
  dashboard_url        = "https://gtm.example.com"
  dnssec_key           = { command = "gcloud secrets versions access latest --secret gtm-dnssec-key" }
  admin_token          = { command = "gcloud secrets versions add gtm-admin-token --data-file=-" }
}

output "user_data" {
  value     = module.control.user_data
  sensitive = true
}
