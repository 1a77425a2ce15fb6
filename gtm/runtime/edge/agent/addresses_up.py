"""The addresses that were up once, as the edge's data directory keeps them: those alone can be found down after a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from gtm.files import write_whole
from gtm.prober.schedule import MOST_ADDRESSES

logger = logging.getLogger(__name__)

FILE = "addresses-up"
_MOST_BYTES = MOST_ADDRESSES * 2_200
"""More than so many addresses with their URLs take; what lies beyond is not read."""


def load(data_dir: Path) -> frozenset[str]:
    """Those of the last time (`gtm.core.health.addresses.address_key`); none where the file is missing or cannot be read."""
    try:
        with (data_dir / FILE).open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        logger.warning("cannot read which addresses were up, so each counts once it is up again: %s", error)
        return frozenset()
    return frozenset(line for line in text.split("\n") if " " in line)


def save(data_dir: Path, keys: Iterable[str]) -> None:
    """Keep them for the next start."""
    try:
        write_whole(data_dir / FILE, "".join(f"{key}\n" for key in sorted(keys)).encode())
    except OSError as error:
        logger.warning("cannot keep which addresses were up for the next start: %s", error)
