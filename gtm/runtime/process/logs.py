"""Logging for people at a terminal: one line an event, time in UTC, on standard error. What libraries say is redacted (`gtm.secret`)."""

from __future__ import annotations

import logging
import sys
import time

from gtm.secret import guard_tracebacks, redact


class _Redacted(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure(level: str, process: str) -> None:
    """Set up logging for this process.

    Args:
        level: debug, info, warning or error.
        process: what stands in each line, as in `edge` or `dns-1`.
    """
    guard_tracebacks()
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Redacted(
        f"%(asctime)s.%(msecs)03dZ %(levelname)-7s {process}: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        for chatty in ("alembic", "apscheduler", "httpx", "httpcore", "uvicorn"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
