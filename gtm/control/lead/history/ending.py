"""What is written when control ends, so that the next one can go on with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from gtm.storage.errors import StorageUnavailable

logger = logging.getLogger(__name__)

LONGEST = 2.0
"""Seconds that it may take: whoever stops control waits for it."""


async def last(what: str, writing: Awaitable[None]) -> None:
    """Write for the last time; what cannot be written is lost, and the log says so."""
    try:
        async with asyncio.timeout(LONGEST):
            await writing
    except (StorageUnavailable, TimeoutError) as error:
        logger.warning("the end of %s is lost: %s", what, str(error) or "the database is too slow")
