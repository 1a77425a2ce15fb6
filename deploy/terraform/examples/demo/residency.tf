# Where the law, or a contract, lets requests be served.

resource "gtm_residency_rule" "gdpr_chat" {
  name = "gdpr-chat"
  match = {
    services             = [gtm_service.demo["chat"].name]
    client_jurisdictions = ["EEA"]
  }
  allow       = { jurisdictions = ["EEA"] }
  legal_basis = "Regulation (EU) 2016/679 (GDPR), Chapter V, Art. 44-46: personal data of clients in the European Economic Area are transferred to third countries only on the conditions of that chapter; this service does not transfer them at all."
}

resource "gtm_residency_rule" "clinic_records" {
  name = "clinic-records"
  match = {
    services = [gtm_service.demo["records"].name]
    tenants  = [gtm_tenant.clinic.name]
  }
  allow       = { jurisdictions = ["DE"] }
  legal_basis = "Fünftes Buch Sozialgesetzbuch (SGB V) § 393 (cloud processing of health and social data); the tenant's contract narrows it to Germany."
}

resource "gtm_residency_rule" "health_records" {
  name = "health-records"
  match = {
    services     = [gtm_service.demo["records"].name]
    data_classes = [gtm_data_class.health.name]
  }
  allow       = { jurisdictions = ["DE"] }
  legal_basis = "Regulation (EU) 2016/679 (GDPR) Art. 9 (special categories of personal data); Fünftes Buch Sozialgesetzbuch (SGB V) § 393, narrowed to Germany by the operator."
}
