"""What proves endurance rather than a single clause: run by `make drills`, too long for `make test`."""
