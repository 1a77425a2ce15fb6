"""What edges and balancers do alike: follow control's feed, keep on disk what stays true without it, and hand their sockets to a successor."""
