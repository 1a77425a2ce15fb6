"""What signals mean to a server: SIGTERM and SIGINT end it, SIGHUP lets it look at its files again and never ends it.

SIGHUP comes from operators and log rotation, and from a terminal that is closed: the server cannot tell which, and goes on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def spare() -> None:
    """Let SIGHUP end neither this process nor what it starts; `heed` says what follows from it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def leave_to_parent() -> None:
    """In a child: what comes from a terminal, and what its whole family is sent, the parent sees to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spare()


def heed(stop: Callable[[], None], look: Callable[[], None]) -> None:
    """Follow signals from now on, in the event loop that runs.

    Args:
        stop: asks this server to end.
        look: lets it look at its files again.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, look)
