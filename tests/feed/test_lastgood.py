"""The last-good file comes back whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.policy import Policy
from gtm.core.model.state import State
from gtm.feed import lastgood
from gtm.feed.wire import AccessMessage, FeedError, HeartbeatMessage, Message, SnapshotMessage, StateMessage
from tests.core.strategies import SHIPPED, quick

MESSAGES: list[Message] = [
    SnapshotMessage.of(7, 1.5, Policy(), SHIPPED),
    StateMessage(State(3)),
    AccessMessage(Access((TokenGrant("aa", Role.VIEWER),))),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved file; tests that damage it write elsewhere."""
    path = tmp_path_factory.mktemp("lastgood") / "last-good"
    lastgood.save(path, MESSAGES)
    return path


def test_what_was_saved_is_loaded(path: Path) -> None:
    """The messages come back in order, from a file that only its owner may read."""
    assert lastgood.load(path) == MESSAGES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@quick(150)
@given(st.data())
def test_a_cut_or_flipped_file_is_damaged(path: Path, data: st.DataObject) -> None:
    """Any file cut short or with any bit flipped is refused."""
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    damaged = path.with_name("damaged")
    damaged.write_bytes(content)
    with pytest.raises(FeedError, match="damaged"):
        lastgood.load(damaged)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"\x7fELF\n\0", b"gtm-last-good 2 00\n", b"\0" * 4096]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, another program's, or another version's is not a last-good file."""
    path = tmp_path / "last-good"
    path.write_bytes(content)
    with pytest.raises(FeedError, match="is not a last-good file of this version"):
        lastgood.load(path)


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    """Before the first save there is none, which callers can tell from a damaged one."""
    with pytest.raises(FileNotFoundError):
        lastgood.load(tmp_path / "last-good")


def test_saving_replaces_whole(tmp_path: Path) -> None:
    """A reader with the old file open keeps it whole; afterwards only the new file is there."""
    path = tmp_path / "last-good"
    lastgood.save(path, MESSAGES)
    before = path.read_bytes()
    with path.open("rb") as reader:
        lastgood.save(path, [HeartbeatMessage(1.0)])
        assert reader.read() == before
    assert lastgood.load(path) == [HeartbeatMessage(1.0)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """Where the file cannot be replaced the error surfaces, and no temporary file stays."""
    path = tmp_path / "last-good"
    path.mkdir()
    (path / "kept").touch()
    with pytest.raises(OSError, match="last-good"):
        lastgood.save(path, MESSAGES)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        lastgood.save(tmp_path / "absent" / "last-good", MESSAGES)
