terraform import gtm_region_state.example eu-central
