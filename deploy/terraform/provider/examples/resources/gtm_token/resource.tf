terraform {
  required_version = ">= 1.11" # write-only attributes
  required_providers {
    gtm    = { source = "gtm/gtm" }
    random = { source = "hashicorp/random" }
  }
}

# Drawn at each run, used only when the version changes, and written down nowhere.
ephemeral "random_password" "edge" {
  length  = 48
  special = false
}

resource "gtm_token" "edge" {
  name              = "edge-fra"
  role              = "edge"
  secret_wo         = ephemeral.random_password.edge.result
  secret_wo_version = 1
}

# Hand the same text to whatever keeps secrets for the edge, such as
#   resource "aws_secretsmanager_secret_version" "edge" {
#     secret_string_wo         = ephemeral.random_password.edge.result
#     secret_string_wo_version = 1
#   }
