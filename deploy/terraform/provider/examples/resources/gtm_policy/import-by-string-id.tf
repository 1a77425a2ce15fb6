import {
  to = gtm_policy.example
  id = "policy"
}
