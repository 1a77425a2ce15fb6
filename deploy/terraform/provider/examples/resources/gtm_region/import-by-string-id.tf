import {
  to = gtm_region.example
  id = "eu-central"
}
