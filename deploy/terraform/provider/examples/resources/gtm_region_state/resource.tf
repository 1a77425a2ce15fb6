# Taken out for maintenance; remove the resource to have the region serve again.
resource "gtm_region_state" "fra" {
  region      = gtm_region.fra.name
  admin_state = "draining"
  comment     = "new switches"
}
