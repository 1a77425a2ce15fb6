# A folder of YAML files as one revision: all of it, or nothing.
resource "gtm_policy" "all" {
  folder = "${path.module}/policy"
}

# A document works as well.
resource "gtm_policy" "tenants" {
  document = jsonencode({
    tenants = [for name in ["acme", "clinic"] : { name = name }]
  })
}
