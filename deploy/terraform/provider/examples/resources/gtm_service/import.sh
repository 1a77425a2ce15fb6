terraform import gtm_service.example chat
