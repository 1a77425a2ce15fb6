"""What every process of gtm is made of: sockets, signals, children, logs, and a server of HTTP with bounds."""
