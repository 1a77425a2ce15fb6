"""What has to be so before control serves, and what waiting mends."""

from __future__ import annotations

import logging

import psycopg
import pytest

from gtm.runtime.control.prepare import prepare
from gtm.storage.errors import DatabaseUnfit

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
