import {
  to = gtm_jurisdiction.example
  id = "DACH"
}
