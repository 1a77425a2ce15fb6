import {
  to = gtm_service.example
  id = "chat"
}
