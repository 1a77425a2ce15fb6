import {
  to = gtm_token.example
  id = "edge-fra"
}
