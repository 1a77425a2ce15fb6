"""An edge's HTTP tier: look-ups and redirects, as a plain ASGI application (`app`)."""
