terraform {
  required_version = ">= 1.8"
  required_providers {
    gtm = {
      source = "gtm/gtm"
    }
  }
}

# The token comes from the environment: export GTM_TOKEN=...
provider "gtm" {
  endpoint  = "https://gtm.example.com"
  workspace = "production"

  # After a change, wait until every live edge has it.
  wait_for_sync = {}
}
