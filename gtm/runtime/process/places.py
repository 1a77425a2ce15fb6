"""Files that say where addresses are, taken in again while a process runs."""

from __future__ import annotations

import logging

from gtm.geoip.reader import GeoIPError, Locator

logger = logging.getLogger(__name__)


def reload_places(locator: Locator) -> bool:
    """Take in a GeoIP database and overrides that have changed, and log it; whether they were.

    What cannot be used is logged once, and what was in use stays. Reading takes up to a second: an event loop leaves it to a thread.
    """
    try:
        changed = locator.reload_if_changed()
    except GeoIPError as error:
        logger.error("kept the GeoIP database in use: %s", error)
        return False
    if changed:
        logger.info("reloaded the GeoIP database")
        say_lacking(locator)
    return changed


def say_lacking(locator: Locator) -> None:
    """Log what the operator's databases do not tell: otherwise it is only ever "unknown"."""
    for sentence in locator.lacking:
        logger.info("%s", sentence)
