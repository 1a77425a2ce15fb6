"""Tools that make and measure the shipped database of locations; nothing that runs imports them."""
