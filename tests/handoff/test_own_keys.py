"""An edge's own keys: on disk for their owner alone, there again after a start, rolled once the next one is known."""

from __future__ import annotations

import logging
import stat
from base64 import b64encode
from pathlib import Path

import pytest

from gtm.core.handoff.keys import AHEAD, KEEP, ROLL_EVERY, PublicKey, key_text
from gtm.handoff.own_keys import FILE, OwnKeys


def _on_feed(keys: OwnKeys, name: str = "fra-1") -> list[PublicKey]:
    return [PublicKey(name, x) for x in keys.public]


def test_keys_are_made_once(tmp_path: Path) -> None:
    """And readable by their owner alone."""
    ring = OwnKeys(tmp_path).load(1.0)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert OwnKeys(tmp_path).load(2.0) == ring
    assert ring.current.since == 1.0


def test_a_roll_goes_on_after_a_start(tmp_path: Path) -> None:
    """Each step is on disk before it is used, and none is taken without the feed."""
    keys = OwnKeys(tmp_path)
    first = keys.load(0.0).current
    now = ROLL_EVERY
    assert keys.roll(now, _on_feed(keys), "fra-1")
    keys = OwnKeys(tmp_path)
    keys.load(now)
    assert keys.ring is not None
    following = keys.ring.next
    assert following is not None
    assert not keys.roll(now, [PublicKey("fra-1", key_text(first.public))], "fra-1")
    assert not keys.roll(now, _on_feed(keys, "another edge"), "fra-1")
    assert keys.roll(now, _on_feed(keys), "fra-1")
    assert not keys.roll(now + AHEAD - 1, _on_feed(keys), "fra-1")
    assert keys.roll(now + AHEAD, _on_feed(keys), "fra-1")
    assert keys.ring.current.private == following.private
    assert key_text(first.public) in keys.public
    assert OwnKeys(tmp_path).load(now) == keys.ring
    assert not keys.roll(now + AHEAD + KEEP, _on_feed(keys), "fra-1")
    assert keys.roll(now + AHEAD + KEEP + 1, _on_feed(keys), "fra-1")
    assert key_text(first.public) not in keys.public


@pytest.mark.parametrize("content", [b"", b"{}", b"x", b'{"current":{"private":"AAAA","public":"AAAA"}}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, and the edge signs with another key."""
    (tmp_path / FILE).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        ring = OwnKeys(tmp_path).load(1.0)
    assert "holds no keys" in caplog.text
    assert OwnKeys(tmp_path).load(1.0) == ring


def test_a_public_key_of_another_pair_is_no_pair(tmp_path: Path) -> None:
    """Or the edge would sign what nobody can verify."""
    keys, other = OwnKeys(tmp_path), OwnKeys(tmp_path / "x")
    first = keys.load(1.0)
    (tmp_path / "x").mkdir()
    second = other.load(1.0)
    text = (tmp_path / FILE).read_text()
    swapped = text.replace(
        b64encode(first.current.public).decode(), b64encode(second.current.public).decode()
    )
    assert swapped != text
    (tmp_path / FILE).write_text(swapped)
    assert OwnKeys(tmp_path).load(1.0).current.public not in (first.current.public, second.current.public)


def test_a_disk_that_refuses_is_told_of_and_no_step_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The edge signs all the same, with what it has in memory."""
    keys = OwnKeys(tmp_path / "gone")
    with caplog.at_level(logging.WARNING):
        ring = keys.load(0.0)
        assert not keys.roll(ROLL_EVERY, [], "fra-1")
        assert not keys.roll(ROLL_EVERY, [], "fra-1")
    assert keys.ring is ring
    assert caplog.text.count("cannot keep the keys") == 1
