import {
  to = gtm_data_class.example
  id = "health"
}
