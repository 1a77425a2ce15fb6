resource "gtm_zone" "inference" {
  name       = "inference.example.com"
  primary_ns = "ns1.example.com"
  hostmaster = "hostmaster.example.com"

  name_servers = [{ name = "ns1.example.com" }, { name = "ns2.example.com" }]
  records = [
    { name = "www.inference.example.com", type = "TXT", data = ["what does not go by region"] },
  ]
}
