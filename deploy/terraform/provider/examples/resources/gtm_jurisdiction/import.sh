terraform import gtm_jurisdiction.example DACH
