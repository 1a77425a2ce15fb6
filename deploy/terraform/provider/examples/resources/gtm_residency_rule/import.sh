terraform import gtm_residency_rule.example gdpr-chat
