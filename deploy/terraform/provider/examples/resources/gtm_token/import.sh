terraform import gtm_token.example edge-fra
