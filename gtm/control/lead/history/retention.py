"""Entries of the audit log that are too old are forgotten by the active control."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

logger = logging.getLogger(__name__)

EVERY = 3600.0
"""Seconds between looks."""


async def run(database: Database, kept: timedelta, clock: Callable[[], float] = time.time) -> None:
    """Forget what is older than is kept, until cancelled."""
    while True:
        try:
            async with database.transaction() as transaction:
                await transaction.audit.forget(datetime.fromtimestamp(clock(), UTC) - kept)
        except StorageUnavailable as error:
            logger.debug("old entries of the audit log wait for the database: %s", error)
        await asyncio.sleep(EVERY)
