"""How people sign in: by a link, a token or an identity provider."""
