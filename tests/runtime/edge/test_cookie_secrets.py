"""The secrets of DNS cookies, read from a file or drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from gtm.runtime.edge.agent.agent import cookie_secrets

ONE, TWO = "e5e973e5a6b2a43f48e7dc849e37bfcf", "445536bcd2513298075a5d379663c962"


def test_a_secret_of_its_own() -> None:
    """Without a file, each start draws another secret."""
    assert len({cookie_secrets(None)[0] for _ in range(5)}) == 5
    assert [len(secret) for secret in cookie_secrets(None)] == [16]


@pytest.mark.parametrize("text", [f"{ONE}\n", f"{ONE}\n{TWO}", f"\n  {ONE.upper()}\r\n\n{TWO}\n"])
def test_a_file(tmp_path: Path, text: str) -> None:
    """One secret a line, the one in use first."""
    path = tmp_path / "secret"
    path.write_text(text)
    assert cookie_secrets(path) == tuple(bytes.fromhex(part) for part in (ONE, TWO) if part in text.lower())


@pytest.mark.parametrize("text", ["", "\n", ONE[:-2], f"{ONE}00", "no digits", f"{ONE}\n{TWO}\n{ONE}"])
def test_a_wrong_file(tmp_path: Path, text: str) -> None:
    """Anything else is an error that says what is wanted, and not what was found."""
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(OSError, match="one or two lines of 32 hexadecimal digits") as caught:
        cookie_secrets(path)
    assert ONE[:-2] not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there is an error with its name."""
    with pytest.raises(OSError, match=r"--dns-cookie-secret-file: `.*/none` cannot be read: No such file"):
        cookie_secrets(tmp_path / "none")
