resource "gtm_region" "fra" {
  name      = "eu-central"
  lat       = provider::gtm::city("Frankfurt").lat
  lon       = provider::gtm::city("Frankfurt").lon
  country   = provider::gtm::city("Frankfurt").country
  endpoints = [{ url = "https://fra.inference.example.com" }]

  # Requests that it serves at once.
  capacity = { outstanding = 400 }
}
