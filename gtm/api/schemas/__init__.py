"""Answers and bodies, as the OpenAPI document describes them."""
