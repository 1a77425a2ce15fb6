"""What an edge keeps in its data directory for its next start: the name that its token is for, and the addresses that were up once.

The name is that of an edge which nobody named: the host's, until control says which one its token is for. Kept, the edge has it from
the start the next time, also without control. Those addresses alone can be found down after a restart.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gtm.files import write_whole
from gtm.prober.schedule import MOST_ADDRESSES
from gtm.settings import EdgeSettings

logger = logging.getLogger(__name__)

NAME = "edge-name"
ADDRESSES = "addresses-up"
_MOST_BYTES = MOST_ADDRESSES * 2_200
"""More than so many addresses with their URLs take; what lies beyond is not read."""
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
    return settings.data_dir / NAME


def addresses_up(data_dir: Path) -> frozenset[str]:
    """Those of the last time (`gtm.core.health.addresses.address_key`); none where the file is missing or cannot be read."""
    try:
        with (data_dir / ADDRESSES).open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        logger.warning("cannot read which addresses were up, so each counts once it is up again: %s", error)
        return frozenset()
    return frozenset(line for line in text.split("\n") if " " in line)


def keep_addresses_up(data_dir: Path, keys: Iterable[str]) -> None:
    """Keep them for the next start."""
    try:
        write_whole(data_dir / ADDRESSES, "".join(f"{key}\n" for key in sorted(keys)).encode())
    except OSError as error:
        logger.warning("cannot keep which addresses were up for the next start: %s", error)
