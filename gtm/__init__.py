"""gtm: a self-hosted global traffic manager."""
