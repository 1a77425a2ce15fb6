import {
  to = gtm_region_state.example
  id = "eu-central"
}
