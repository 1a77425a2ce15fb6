"""What has to be so before control serves, and what waiting mends."""

from __future__ import annotations

import logging

import psycopg
import pytest
from psycopg import sql

from gtm.runtime.control.prepare import prepare
from gtm.storage.errors import DatabaseUnfit, StorageReadOnly

pytestmark = pytest.mark.anyio


async def test_waiting_mends_no_unfit_database(
    empty_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody has to change it, that is said at once, and not after half a minute of tries."""
    with psycopg.connect(empty_database_url) as session:
        session.execute("CREATE TABLE tokens (x int)")
    with caplog.at_level(logging.WARNING), pytest.raises(DatabaseUnfit, match="a database of its own"):
        await prepare(empty_database_url)
    assert "waiting for the database" not in caplog.text


async def test_a_prepared_database_may_be_read_only(prepared_url: str, database_url: str) -> None:
    """Control starts on it in the middle of a failover: there is nothing to write. A fresh one is refused, in one line."""
    for url in (prepared_url, database_url):
        with psycopg.connect(url, autocommit=True) as session:
            name = sql.Identifier(session.info.dbname)
            session.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    assert await prepare(prepared_url) is None
    with pytest.raises(StorageReadOnly, match="name the primary"):
        await prepare(database_url)
