terraform {
  required_version = ">= 1.8"

  required_providers {
    gtm = {
      source = "gtm/gtm"
    }
  }
}
