"""What commands of several rooms share: options, the client of the control API, output, exit codes."""
