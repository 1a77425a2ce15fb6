"""How sockets pass from one edge to the next, and from workers that lost their agent."""
