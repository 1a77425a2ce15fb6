terraform import gtm_spillover_rule.example frankfurt-to-dublin
