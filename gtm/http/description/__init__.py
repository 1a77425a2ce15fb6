"""What an edge takes and answers over HTTP, as its OpenAPI document."""
