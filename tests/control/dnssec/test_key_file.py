"""The key file: private keys come back with it, and with nothing else."""

from __future__ import annotations

import stat
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.dnssec.key_file import KeyFile, KeyFileError
from tests.core.strategies import quick


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    """A key file, just made."""
    found = KeyFile(tmp_path_factory.mktemp("keys") / "data" / "dnssec-key")
    found.create()
    return found


def test_the_file_is_made_once_for_its_owner(key_file: KeyFile) -> None:
    """It is readable by its owner only, made anew never, and nothing else is left beside it."""
    before = key_file.path.read_bytes()
    key_file.create()
    key_file.load()
    assert key_file.path.read_bytes() == before
    assert stat.S_IMODE(key_file.path.stat().st_mode) == 0o600
    assert [path.name for path in key_file.path.parent.iterdir()] == ["dnssec-key"]


def test_private_keys_come_back(key_file: KeyFile) -> None:
    """What was sealed opens for its zone and id, and no two sealings are alike."""
    sealed = key_file.load().seal("demo.test", "k1", b"secret")
    assert b"secret" not in sealed
    assert key_file.load().open("demo.test", "k1", sealed) == b"secret"
    assert key_file.load().seal("demo.test", "k1", b"secret") != sealed


@quick(60)
@given(st.binary(max_size=60), st.integers(0, 59), st.integers(1, 255))
def test_damage_is_found(key_file: KeyFile, junk: bytes, at: int, change: int) -> None:
    """No bytes but the sealed ones open, nor those for another zone or id."""
    sealed = bytearray(key_file.load().seal("demo.test", "k1", b"\1" * 32))
    for zone, key_id in (("demo.test", "k2"), ("other.test", "k1")):
        with pytest.raises(KeyFileError, match=f"`{key_id}` of zone `{zone}`"):
            key_file.load().open(zone, key_id, bytes(sealed))
    sealed[at] ^= change
    for wrong in (bytes(sealed), junk):
        with pytest.raises(KeyFileError, match="cannot be decrypted"):
            key_file.load().open("demo.test", "k1", wrong)


@pytest.mark.parametrize(
    "content", [b"", b"short", b64encode(bytes(31)), b64encode(bytes(33)), b"\xff" * 44, b"\xff\xfek\0"]
)
def test_a_file_that_holds_no_key_is_told(tmp_path: Path, content: bytes) -> None:
    """A malformed key file is an error that says what it must hold, and stays as it is."""
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match=r"it must be 32 bytes in base64|save it as UTF-8"):
        KeyFile(path).load()
    KeyFile(path).create()
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_read_or_made_is_told(tmp_path: Path) -> None:
    """A missing file and a place that cannot be written to are errors that name the setting."""
    with pytest.raises(KeyFileError, match="GTM_DNSSEC_KEY_FILE"):
        KeyFile(tmp_path / "none").load()
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyFileError, match="cannot make"):
        KeyFile(tmp_path / "file" / "key").create()
