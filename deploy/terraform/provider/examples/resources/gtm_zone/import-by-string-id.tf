import {
  to = gtm_zone.example
  id = "inference.example.com"
}
