"""Logging for people at a terminal: one line an event, time in UTC, on standard error."""

from __future__ import annotations

import logging
import sys
import time


def configure(level: str, process: str) -> None:
    """Set up logging for this process.

    Args:
        level: debug, info, warning or error.
        process: what stands in each line, as in `edge` or `dns-1`.
    """
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname)-7s {process}: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        for chatty in ("alembic", "apscheduler", "httpx", "httpcore", "uvicorn"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
