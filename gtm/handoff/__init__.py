"""Handoffs on the wire: signed by edges and balancers, verified by balancers, keys as JWKS."""
