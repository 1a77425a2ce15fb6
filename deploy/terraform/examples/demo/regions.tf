# Each region is a small inference server on a loopback address of its own while the demo runs. Capacities are such that a
# laptop can fill them: at 0.4 s a request, 40 slots serve 100 requests a second.
locals {
  regions = {
    eu-central   = { city = "Frankfurt", country = "DE", run_from = "DE", lat = 50.1109, lon = 8.6821, host = 1, slots = 40 }
    eu-west      = { city = "Dublin", country = "IE", run_from = "US", lat = 53.3498, lon = -6.2603, host = 2, slots = 40 }
    us-east      = { city = "Ashburn", country = "US", run_from = "US", lat = 39.0438, lon = -77.4874, host = 3, slots = 60, state = "US-VA" }
    us-west      = { city = "Portland", country = "US", run_from = "US", lat = 45.5152, lon = -122.6784, host = 4, slots = 60, state = "US-OR" }
    ap-southeast = { city = "Singapore", country = "SG", run_from = "SG", lat = 1.3521, lon = 103.8198, host = 5, slots = 60 }
    ap-northeast = { city = "Tokyo", country = "JP", run_from = "US", lat = 35.6762, lon = 139.6503, host = 6, slots = 40 }
    sa-east      = { city = "São Paulo", country = "BR", run_from = "BR", lat = -23.5505, lon = -46.6333, host = 7, slots = 20 }
  }

  # The order of failover, and for clients whose location is unknown: a map has none of its own.
  everywhere = ["eu-central", "eu-west", "us-east", "us-west", "ap-southeast", "ap-northeast", "sa-east"]
}

resource "gtm_region" "demo" {
  for_each = local.regions

  name             = each.key
  display_name     = each.value.city
  country          = each.value.country
  operator_country = each.value.run_from
  subdivision      = try(each.value.state, null)
  lat              = each.value.lat
  lon              = each.value.lon

  endpoints = [{
    url  = "http://127.0.1.${each.value.host}:9000"
    ipv4 = ["127.0.1.${each.value.host}"]
  }]
  capacity = { outstanding = each.value.slots }
  probe = {
    interval       = 1
    timeout        = 0.8
    down_threshold = 2
  }
}
