resource "gtm_data_class" "health" {
  name = "health"
}
