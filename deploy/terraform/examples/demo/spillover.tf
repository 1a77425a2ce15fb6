# How much of a region's demand may be served elsewhere when it is short of capacity.

resource "gtm_spillover_rule" "frankfurt_to_dublin" {
  name                 = "frankfurt-to-dublin"
  from_region          = gtm_region.demo["eu-central"].name
  to_regions           = [gtm_region.demo["eu-west"].name]
  max_share            = 0.4
  max_added_latency_ms = 40
}

resource "gtm_spillover_rule" "ashburn_to_portland" {
  name                 = "ashburn-to-portland"
  from_region          = gtm_region.demo["us-east"].name
  to_regions           = [gtm_region.demo["us-west"].name]
  max_share            = 0.5
  max_added_latency_ms = 80
}

resource "gtm_spillover_rule" "singapore_to_tokyo" {
  name                    = "singapore-to-tokyo"
  from_region             = gtm_region.demo["ap-southeast"].name
  to_regions              = [gtm_region.demo["ap-northeast"].name]
  max_share               = 0.3
  max_requests_per_second = 100
}
