"""A policy in Terraform's language, as resources of gtm's provider: how it is written, what it is called, what refers to what."""
