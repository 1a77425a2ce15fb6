"""Who asks for how much: demand cells, and traffic as it was recorded or is expected."""
