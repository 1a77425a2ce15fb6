"""Zone-signing keys open at the edge that they were sealed to, and nowhere else."""

from __future__ import annotations

import asyncio
import stat
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.signing.keys import Keys, SignedSet, ZoneKeys, dnskey_rdata
from gtm.feed.client import FeedClient
from gtm.feed.sealing import FILE, MAX_CONTENT, Seal, SealingKey
from gtm.feed.wire import (
    MAX_LINE,
    FeedError,
    HeartbeatMessage,
    KeysMessage,
    Message,
    SealedKeysMessage,
    decode,
    encode,
)
from tests.core.strategies import quick
from tests.feed.feeds import feeding, messages_of

TOKEN = "gtm_of_an_edge"
HASH = sha256(TOKEN.encode()).hexdigest()
PRIVATE = b"\1\2\3\4" * 8
ZONE = ZoneKeys(
    "demo.test", (SignedSet(48, 3600, (b"\1",), (b"\2",)),), 7, dnskey_rdata(256, bytes(64)), PRIVATE
)
CONTENT = encode(KeysMessage(Keys(3, (ZONE,))))
OURS, THEIRS = SealingKey(b"\5" * 32), SealingKey(b"\6" * 32)
EDGES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}[a-z0-9]", fullmatch=True)


def sealed(content: bytes = CONTENT, edge: str = "fra-1", public: str = OURS.public) -> SealedKeysMessage:
    """What control sends that edge, from the bytes of the feed."""
    message = decode(Seal(public, edge, HASH).seal(content))
    assert isinstance(message, SealedKeysMessage)
    return message


@quick(50)
@given(EDGES, st.integers(1, 2**40), st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_what_is_sealed_opens_at_its_edge(edge: str, version: int, private: bytes, scalar: bytes) -> None:
    """For any edge, key pair and keys; and no two sealings are alike."""
    key = SealingKey(private)
    if not 0 < int.from_bytes(scalar, "big") < 2**255:
        scalar = PRIVATE
    zone = ZoneKeys("demo.test", (), 7, ZONE.dnskey, scalar)
    message = KeysMessage(Keys(version, (zone,)))
    seal = Seal(key.public, edge, HASH)
    first, second = seal.seal(encode(message)), seal.seal(encode(message))
    assert first != second
    for line in (first, second):
        assert b64encode(scalar) not in line
        found = decode(line)
        assert isinstance(found, SealedKeysMessage)
        assert scalar not in found.sealed
        assert key.open(found, edge, TOKEN) == message


@quick(200)
@given(st.integers(0, 8 * len(sealed().sealed) - 1))
def test_any_bit_flipped_is_found(bit: int) -> None:
    """What is damaged anywhere does not open."""
    damaged = bytearray(sealed().sealed)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FeedError, match="cannot be opened"):
        OURS.open(SealedKeysMessage(bytes(damaged)), "fra-1", TOKEN)


@quick(50)
@given(st.integers(0, len(sealed().sealed) - 1), st.binary(max_size=100))
def test_neither_parts_nor_junk_open(size: int, junk: bytes) -> None:
    """What was cut, or made up, is an error of its own."""
    for wrong in (sealed().sealed[:size], junk, sealed().sealed + b"\0"):
        with pytest.raises(FeedError, match="cannot be opened"):
            OURS.open(SealedKeysMessage(wrong), "fra-1", TOKEN)


@pytest.mark.parametrize(
    ("key", "edge", "token"), [(THEIRS, "fra-1", TOKEN), (OURS, "fra-2", TOKEN), (OURS, "fra-1", "gtm_other")]
)
def test_nothing_opens_elsewhere(key: SealingKey, edge: str, token: str) -> None:
    """Another edge's key, name or token opens nothing."""
    with pytest.raises(FeedError, match="sealed to another key"):
        key.open(sealed(), edge, token)


@pytest.mark.parametrize("content", [encode(HeartbeatMessage(1.0)), b'{"type": "later", "body": {}}', b"{"])
def test_only_keys_are_taken_from_what_is_sealed(content: bytes) -> None:
    """Other messages do not come in that way."""
    with pytest.raises(FeedError):
        OURS.open(sealed(content), "fra-1", TOKEN)


@pytest.mark.parametrize(
    "public",
    [
        "",
        "x",
        b64encode(bytes(31)).decode(),
        b64encode(bytes(32)).decode(),
        b64encode(b"\1" + bytes(31)).decode(),
    ],
)
def test_a_public_key_that_is_none(public: str) -> None:
    """What is too short is refused, and so are points that agree with every key on zero (RFC 7748 §6.1)."""
    with pytest.raises(ValueError, match=r".*"):
        Seal(public, "fra-1", HASH)


def test_the_most_that_is_sealed_fits_into_a_line() -> None:
    """Control seals no more than edges accept as a message."""
    assert len(Seal(OURS.public, "fra-1", HASH).seal(bytes(MAX_CONTENT))) <= MAX_LINE


def test_the_key_is_made_once(tmp_path: Path) -> None:
    """It is its owner's only, outlives restarts, and nothing else is left beside it."""
    first = SealingKey.kept(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert SealingKey.kept(tmp_path).public == first.public
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("content", [b"", b"junk", b64encode(bytes(31)), b"\xff" * 44])
def test_a_damaged_key_is_replaced(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Another one does as well, and the log says so."""
    (tmp_path / FILE).write_bytes(content)
    made = SealingKey.kept(tmp_path)
    assert SealingKey.kept(tmp_path).public == made.public
    assert "holds no key, making another" in caplog.text


def test_a_disk_that_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An edge follows all the same, with a key of its own for as long as it runs."""
    made = SealingKey.kept(tmp_path / "missing")
    assert made.open(sealed(public=made.public), "fra-1", TOKEN).keys.version == 3
    assert "cannot keep the key" in caplog.text


def test_a_feed_goes_on_after_keys_that_do_not_open() -> None:
    """They are skipped and said; keys sealed to this edge come opened, and in clear from a control of before."""
    lines = [
        encode(sealed(public=THEIRS.public)),
        encode(SealedKeysMessage(b"junk")),
        encode(sealed()),
        CONTENT,
        encode(HeartbeatMessage(1.0)),
    ]

    async def read(key: SealingKey | None) -> tuple[list[Message], list[str]]:
        skipped: list[str] = []
        async with (
            feeding(lines) as url,
            FeedClient(url, TOKEN, "fra-1", key=key, skipped=skipped.append) as client,
        ):
            return await messages_of(client), skipped

    keys, beat = decode(CONTENT), HeartbeatMessage(1.0)
    found, skipped = asyncio.run(read(OURS))
    assert found == [keys, keys, beat]
    assert len(skipped) == 2
    assert all("cannot be opened" in text for text in skipped)
    found, skipped = asyncio.run(read(None))
    assert (found, skipped) == ([*map(decode, lines[:3]), keys, beat], [])
