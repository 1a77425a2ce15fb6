data "gtm_regions" "german" {
  country = "DE"
}

output "names" {
  value = data.gtm_regions.german.names
}
