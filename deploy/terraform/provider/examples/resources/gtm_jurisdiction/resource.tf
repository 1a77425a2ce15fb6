resource "gtm_jurisdiction" "dach" {
  name         = "DACH"
  display_name = "Germany, Austria and Switzerland"
  members      = ["DE", "AT", "CH"]
}
