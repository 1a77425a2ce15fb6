output "frankfurt" {
  value = provider::gtm::city("Frankfurt") # { name = "Frankfurt", country = "DE", lat = 50.11, lon = 8.68 }
}
