"""Control processes of tests, which write no history down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gtm.control.lead.election import Election, Standing
from gtm.control.replica import Replica
from gtm.settings import ControlSettings
from gtm.storage.session import Database

SETTINGS = ControlSettings(data_dir=Path("/nonexistent"), demand_days=0, probe_days=0)


def sole(database: Database) -> Election:
    """The part of a process that is the only one on its database: it is active."""
    election = Election(database, "", lambda: None)
    election.standing = Standing.ACTIVE
    return election


def replica(
    database: Database, settings: ControlSettings = SETTINGS, *clocks: Callable[[], float]
) -> Replica:
    """Make a process that is the only one on its database, and active from the start."""
    made = Replica(database, settings, sole(database), *clocks)
    made.lead()
    return made
