terraform import gtm_zone.example inference.example.com
