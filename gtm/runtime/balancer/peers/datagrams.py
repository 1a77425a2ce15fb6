"""A word of one balancer to others of its region, as a signed datagram.

    "GTMW1"  ·  public key (32 bytes)  ·  Ed25519 signature (64 bytes)  ·  JSON

The signature is over the first six bytes, counting a zero byte for the key's place, and the JSON. What an edge or balancer signs otherwise
are JWTs (`gtm.handoff.jwt`), which begin with `ey`: neither passes for the other.

Laws:
  1. Whatever bytes come, `opened` returns what somebody signed whose key is known, or raises `BadDatagram`, in time that is bounded by `MOST`.
  2. Numbers that no balancer could mean are refused: a peer that is wrong, or lies, makes nobody's sums infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gtm.core.balance.flights import PeerLoad
from gtm.core.balance.sharing import SlotUse
from gtm.core.handoff.keys import OwnKey
from gtm.feed.units import Counter, Moment, Requests
from gtm.nesting import shallow
from gtm.runtime.balancer.words import Word

MOST = 60_000
"""Bytes of a datagram, below what IP carries."""
MOST_MEMBERS = 256
MOST_BACKENDS = 2048
_MAGIC = b"GTMW1"
_KEY, _SIGNATURE = 32, 64
_HEAD = len(_MAGIC) + _KEY + _SIGNATURE

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=400)]


class _Use(NamedTuple):
    running: Requests
    waiting: Requests


class _Load(NamedTuple):
    requests: Requests
    work_us: Counter


class _Body(msgspec.Struct, forbid_unknown_fields=False):
    region: _Name
    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    sequence: Counter
    at: Moment
    uses: Annotated[dict[_Name, _Use], msgspec.Meta(max_length=MOST_MEMBERS)]
    loads: Annotated[dict[_Name, _Load], msgspec.Meta(max_length=MOST_BACKENDS)]
    age: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    ending: bool = False


class Said(NamedTuple):
    """What a datagram says.

    `instance` tells one start of a balancer from others, `sequence` numbers its datagrams, `at` is when it was sent, in POSIX seconds
    by its own clock. `ending`: it is the last. `key` is the public key that it was verified by; it is not said.
    """

    region: str
    instance: str
    sequence: int
    at: float
    word: Word
    ending: bool = False
    key: bytes = b""


class BadDatagram(ValueError):  # noqa: N818 - what it is
    """What came is no word of a peer."""


_encode = msgspec.json.Encoder().encode
_body = msgspec.json.Decoder(_Body)


class Sealer:
    """Signs with one key."""

    def __init__(self, key: OwnKey) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key.private)
        self._public = key.public

    def seal(self, said: Said) -> bytes:
        """The datagram. Of more backends than it takes, those with least work are left out: what is shared is slots."""
        word = said.word
        loads = sorted(word.loads.items(), key=lambda one: -one[1].work_us)[:MOST_BACKENDS]
        while True:
            body = _encode(
                _Body(
                    said.region,
                    said.instance,
                    said.sequence,
                    said.at,
                    {name: _Use(*use) for name, use in word.uses.items()},
                    {name: _Load(round(load.requests), load.work_us) for name, load in loads},
                    word.age,
                    said.ending,
                )
            )
            if _HEAD + len(body) <= MOST or not loads:
                break
            loads = loads[: len(loads) // 2]
        return _MAGIC + self._public + self._key.sign(_signed(body)) + body


def opened(datagram: bytes, known: Callable[[bytes], bool]) -> Said:
    """What a datagram says.

    Args:
        datagram: as it came.
        known: whether a public key is a peer's: others are not verified.

    Raises:
        BadDatagram: it is none, or not of one of these.
    """
    if not _HEAD < len(datagram) <= MOST or not datagram.startswith(_MAGIC):
        raise BadDatagram("not of this form")
    public = datagram[len(_MAGIC) : len(_MAGIC) + _KEY]
    if not known(public):
        raise BadDatagram("not by a key of a peer's")
    body = datagram[_HEAD:]
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(datagram[_HEAD - _SIGNATURE : _HEAD], _signed(body))
    except (InvalidSignature, ValueError) as error:
        raise BadDatagram("the signature is not of this key") from error
    try:
        found = _body.decode(shallow(body))
    except ValueError as error:
        raise BadDatagram(str(error)) from error
    return Said(found.region, found.instance, found.sequence, found.at, _word(found), found.ending, public)


def _word(body: _Body) -> Word:
    uses: Mapping[str, _Use] = body.uses
    return Word(
        {name: SlotUse(*use) for name, use in uses.items()},
        {name: PeerLoad(*load) for name, load in body.loads.items()},
        body.age,
    )


def _signed(body: bytes) -> bytes:
    return _MAGIC + b"\0" + body
