"""The first admin token is shown by the first start that gets so far, whenever the one that made it was ended."""

from __future__ import annotations

import asyncio
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gtm.control.live import tokens
from gtm.runtime.control.prepare import FirstToken, prepare
from gtm.storage.history.audit import CONTROL
from gtm.storage.session import Database


def shown(url: str, first: FirstToken | None) -> str | None:
    """What a start on a database would show, as far as control goes."""
    return asyncio.run(prepare(url, first=first))


async def _counting(url: str, text: str) -> tuple[bool, int]:
    database = Database(url)
    try:
        works = await tokens.counts(database, text, datetime.now(UTC))
        return works, len(await tokens.list_all(database))
    finally:
        await database.dispose()


def counting(url: str, text: str) -> tuple[bool, int]:
    """Whether a token's text counts, and how many tokens there are."""
    return asyncio.run(_counting(url, text))


class Ended(Exception):  # noqa: N818 - it stands for a kill -9
    """The process is gone."""


class EndsThere(FirstToken):
    """A start that is ended once the token is on disk and not yet in the database."""

    def keep(self, text: str) -> None:
        """Keep it, and end."""
        super().keep(text)
        raise Ended


def test_a_start_that_ends_before_it_shows_it_leaves_it_to_the_next(
    database_url: str, tmp_path: Path
) -> None:
    """The same token is shown until it was; then never again."""
    first = FirstToken(tmp_path)
    text = shown(database_url, first)
    assert text is not None
    assert [shown(database_url, first) for _ in range(2)] == [text, text]
    assert counting(database_url, text) == (True, 1)
    (file,) = tmp_path.iterdir()
    assert file.name == "first-admin-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first.forget()
    assert shown(database_url, first) is None
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_never_came_to_count_is_not_shown(database_url: str, tmp_path: Path) -> None:
    """What is on disk alone is forgotten for one that counts."""
    with pytest.raises(Ended):
        shown(database_url, EndsThere(tmp_path))
    lost = FirstToken(tmp_path).text
    assert lost is not None
    text = shown(database_url, FirstToken(tmp_path))
    assert text is not None
    assert text != lost
    assert counting(database_url, text) == (True, 1)
    assert counting(database_url, lost) == (False, 1)
    assert FirstToken(tmp_path).text == text


def test_a_token_that_cannot_be_kept_does_not_count(database_url: str, tmp_path: Path) -> None:
    """Where the disk refuses there is none, and the next start makes one."""
    nowhere = FirstToken(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        shown(database_url, nowhere)
    assert counting(database_url, "") == (False, 0)
    assert shown(database_url, FirstToken(tmp_path)) is not None


@pytest.mark.parametrize("what", ["revoked", "another's", "nonsense"])
def test_what_counts_no_more_is_not_shown(what: str, database_url: str, tmp_path: Path) -> None:
    """A token that was revoked, or a file of another database."""
    first = FirstToken(tmp_path)
    text = shown(database_url, first)
    assert text is not None
    if what == "revoked":

        async def revoke() -> None:
            database = Database(database_url)
            await tokens.revoke(database, "admin", by=CONTROL)
            await database.dispose()

        asyncio.run(revoke())
    elif what == "another's":
        first.keep("gtm_0000000000_none")
    else:
        (tmp_path / "first-admin-token").write_bytes(b"\xff\n\x00")
    assert shown(database_url, first) is None
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_it_is_shown_the_first_time(database_url: str) -> None:
    """Control beside a Postgres of somebody's says it when it makes it."""
    assert shown(database_url, None) is not None
    assert shown(database_url, None) is None
