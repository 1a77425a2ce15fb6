import {
  to = gtm_spillover_rule.example
  id = "frankfurt-to-dublin"
}
