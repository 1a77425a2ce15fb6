"""What edges and balancers do alike: follow control's feed, and keep on disk what stays true without it."""
