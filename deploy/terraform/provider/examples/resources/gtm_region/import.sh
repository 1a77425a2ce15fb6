terraform import gtm_region.example eu-central
