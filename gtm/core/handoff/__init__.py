"""What an edge vouches for when it hands a client to a region, as values: claims, and what a balancer makes of them."""
