resource "gtm_spillover_rule" "fra_to_dub" {
  name        = "frankfurt-to-dublin"
  from_region = gtm_region.fra.name
  to_regions  = [gtm_region.dub.name]

  # Of what Frankfurt is asked for, at most this part.
  max_share = 0.3
}
