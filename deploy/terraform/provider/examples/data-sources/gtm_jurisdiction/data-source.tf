data "gtm_jurisdiction" "eea" {
  name = "EEA"
}

output "countries" {
  value = data.gtm_jurisdiction.eea.countries
}
