import {
  to = gtm_tenant.example
  id = "clinic"
}
