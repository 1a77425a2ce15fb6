"""What `gtm serve` hands to its control, and what that says of the database. Apart from it, so that whoever starts it loads no control."""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from gtm.settings import ControlSettings

LOCK = "control.lock"
"""The lock file in the data directory that a control holds while it runs: it tells a next start who may still have its port."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """What the database is to hold before control serves.

    `edge_token` is the text of the edge's token. `block` is where the demo world stands, None without one, and `secret` what its
    balancers' tokens are made of. `said` is the descriptor on which a `DatabaseReport` is told.
    """

    edge_token: str
    block: int | None
    secret: str
    said: int


@dataclass(frozen=True, slots=True)
class ServedControl:
    """What control is handed. `preparing` is None once the database has been made ready."""

    settings: ControlSettings
    preparing: Preparing | None


class DatabaseReport(msgspec.Struct):
    """What came of making the database ready: `admin_token` is there only the first time. Or what is wrong, and whether another try may go better."""

    admin_token: str | None = None
    regions: tuple[str, ...] = ()
    """The names of the demo world's regions; none without one."""
    error: str = ""
    unreachable: bool = False

    def tell(self, descriptor: int) -> None:
        """Say so."""
        os.write(descriptor, msgspec.json.encode(self))

    @classmethod
    def told(cls, text: bytes) -> DatabaseReport:
        """What was said, in one piece: it is shorter than what a pipe takes at once (PIPE_BUF)."""
        return msgspec.json.decode(text, type=cls)
