"""Telling a service manager (systemd, sd_notify(3)) that this process serves: a datagram to the socket it names."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger(__name__)

_ENVIRONMENT = "NOTIFY_SOCKET"


def notify_ready() -> None:
    """Say that this process is the service's main process, and ready. Without a service manager: nothing."""
    path = os.environ.get(_ENVIRONMENT)
    if not path:
        return
    if path.startswith("@"):
        path = f"\0{path[1:]}"  # an abstract socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(path)
            manager.send(f"MAINPID={os.getpid()}\nREADY=1".encode())
    except OSError as error:
        logger.warning("cannot tell the service manager that this process serves: %s", error)
