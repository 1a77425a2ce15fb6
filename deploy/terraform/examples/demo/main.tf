# The world of `make run` (policies/demo) as Terraform: seven regions, three services, and the rules that bind them.
# `gtm export` shows the same for both.

terraform {
  required_version = ">= 1.8"

  required_providers {
    gtm = {
      source = "gtm/gtm"
    }
  }
}

# Where control is, and the token, stand in GTM_CONTROL_URL and GTM_TOKEN.
provider "gtm" {
  workspace          = "demo"
  allow_fence_change = var.allow_fence_change
}

variable "allow_fence_change" {
  description = "Why a change may let requests go where a residency rule kept them from, such as `terraform destroy` does. Needs a token of role fence-admin."
  type        = string
  default     = null
}
