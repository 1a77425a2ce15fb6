"""Written by `make client` from the OpenAPI documents; do not edit."""
