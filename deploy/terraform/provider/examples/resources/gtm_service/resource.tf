resource "gtm_service" "chat" {
  name      = "chat"
  zone      = gtm_zone.inference.name
  hostnames = [{ name = "chat.inference.example.com" }]

  members = [
    { region = gtm_region.fra.name },
    { region = gtm_region.dub.name, weight = 0.5 },
  ]
}
