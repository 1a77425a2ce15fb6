"""The own keys of an edge or a balancer: made when there are none, kept in its directory, rolled as `gtm.core.handoff.keys` has it.

The file is replaced whole and readable by its owner only. A key is on disk before anybody is told of it, so that an edge that
starts anew signs by what is published. On a disk that refuses it is another key at each start, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import SIZE, OwnKey, PublicKey, Ring, rolled
from gtm.files import write_whole
from gtm.handoff.jwt import made
from gtm.nesting import shallow

logger = logging.getLogger(__name__)

FILE = "edge-handoff-keys"
"""Of an edge's data directory: its ring, as JSON."""
_MAX_FILE = 4096


class OwnKeys:
    """The keys of one edge, or of one balancer.

    Args:
        directory: its data directory.
        file: the name of its ring in there.
        kind: what it is.
    """

    def __init__(self, directory: Path, file: str = FILE, kind: Issuer = Issuer.EDGE) -> None:
        self._path = directory / file
        self._kind = kind
        self._unsaved = False
        self.ring: Ring | None = None
        """None before `load`."""

    @property
    def public(self) -> tuple[str, ...]:
        """Those to be published."""
        return () if self.ring is None else self.ring.public

    def load(self, now: float) -> Ring:
        """Read the keys, or make the first. `now` is POSIX seconds."""
        try:
            ring = _read(self._path)
        except FileNotFoundError:
            ring = None
        except (OSError, ValueError) as error:
            logger.warning("`%s` holds no keys, making others: %s", self._path, error)
            ring = None
        if ring is None:
            first = made()
            ring = Ring(OwnKey(first.private, first.public, now))
            self._save(ring)
        self.ring = ring
        return ring

    def roll(self, now: float, published: Iterable[PublicKey], name: str) -> bool:
        """Take what step is due; whether one was. What is not on disk is not used.

        Args:
            now: POSIX seconds.
            published: the keys on the feed.
            name: that under which its own are published.
        """
        ring = self.ring
        if ring is None:
            return False
        own = frozenset(key.x for key in published if key.issuer == name and key.kind is self._kind)
        following = rolled(ring, now, own, made())
        if following is ring or not self._save(following):
            return False
        self.ring = following
        return True

    def _save(self, ring: Ring) -> bool:
        try:
            write_whole(self._path, msgspec.json.encode(ring) + b"\n")
        except OSError as error:
            if not self._unsaved:
                logger.warning("cannot keep the keys that handoffs are signed with, still trying: %s", error)
            self._unsaved = True
            return False
        self._unsaved = False
        return True


def _read(path: Path) -> Ring:
    """The ring in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds something else, or keys that do not belong together.
    """
    with path.open("rb") as file:
        ring = msgspec.json.decode(shallow(file.read(_MAX_FILE)), type=Ring)
    for key in (ring.current, ring.next, ring.old):
        if key is None:
            continue
        if len(key.private) != SIZE:
            raise ValueError("a private key is not of 32 bytes")
        public = Ed25519PrivateKey.from_private_bytes(key.private).public_key().public_bytes_raw()
        if public != key.public:
            raise ValueError("a public key is not that of the private one")
    return ring
