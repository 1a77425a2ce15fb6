import {
  to = gtm_residency_rule.example
  id = "gdpr-chat"
}
