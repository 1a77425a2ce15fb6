"""Round trips that browsers and balancers post."""
