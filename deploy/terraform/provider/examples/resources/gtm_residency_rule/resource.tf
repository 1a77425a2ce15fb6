resource "gtm_residency_rule" "gdpr" {
  name        = "gdpr-chat"
  match       = { services = [gtm_service.chat.name], client_jurisdictions = ["EEA"] }
  allow       = { jurisdictions = ["EEA"] }
  legal_basis = "Regulation (EU) 2016/679 (GDPR), Chapter V, Art. 44-46"
}
