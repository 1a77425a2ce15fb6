"""From a request to an answer, and its explanation."""
