"""The name of an edge that nobody named: the host's, until control says which one its token is for.

It is kept in the data directory, so that the edge has it from the start the next time, also without control.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path

from gtm.files import write_whole
from gtm.settings import EdgeSettings

logger = logging.getLogger(__name__)

FILE = "edge-name"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def remembered(settings: EdgeSettings) -> EdgeSettings:
    """The settings, with the name of the last time if nobody gives one now."""
    if settings.named:
        return settings
    try:
        name = _path(settings).read_text(encoding="ascii")[:300].strip()
    except (OSError, ValueError):
        return settings
    return replace(settings, name=name) if _NAME.fullmatch(name) else settings


def remember(settings: EdgeSettings, name: str) -> EdgeSettings:
    """The settings with the name that the token is for, for the next time too."""
    if not _NAME.fullmatch(name):
        return settings
    logger.info("this edge is `%s`: its token is for that name, and --name gives no other", name)
    try:
        write_whole(_path(settings), f"{name}\n".encode())
    except OSError as error:
        logger.warning("cannot keep the edge's name for the next start: %s", error)
    return replace(settings, name=name)


def _path(settings: EdgeSettings) -> Path:
    return settings.data_dir / FILE
