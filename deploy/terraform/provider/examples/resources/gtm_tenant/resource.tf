resource "gtm_tenant" "clinic" {
  name = "clinic"

  # Of scarce capacity it gets twice as much as others.
  weight = 2
}
