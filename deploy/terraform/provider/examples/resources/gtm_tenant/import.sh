terraform import gtm_tenant.example clinic
