"""What `gtm serve` loads for its processes, what it hands to them, and what its control says of the database.

Apart from those processes, so that whoever starts them loads neither control nor a balancer.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gtm.runtime.process.forkserver import Load
from gtm.settings import ControlSettings, ServeSettings

LOCK = "control.lock"
"""The lock file in the data directory that a control holds while it runs: it tells a next start who may still have its port."""


def common(settings: ServeSettings) -> list[Load]:
    """What a fork server loads for the processes of `gtm serve`, which have it in common. What control alone needs it loads itself."""
    loads: list[Load] = [
        ("gtm.runtime.serve.supervisor",),
        ("gtm.runtime.edge.agent.__main__",),
        ("gtm.runtime.edge.worker.__main__",),
        ("httpcore",),  # which httpx loads with its first client, and that its first connection
        ("anyio._backends._asyncio",),
        ("gtm.geoip.reader", "keep", str(settings.edge.geoip_db or "")),
    ]
    if settings.demo:
        loads.append(("gtm.runtime.serve.demo_world",))
    return loads


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


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """What the world is handed.

    `switch` is the descriptor of the listening socket of the block's switch address, which the parent holds too. The regions'
    balancers follow `control_url` with tokens made of `secret`, and keep what must last in `data_dir`.
    """

    block: int
    switch: int
    secret: str
    control_url: str
    data_dir: Path


def region_token(secret: str, region: str) -> str:
    """The token (role `balancer`) of a region's balancer: whoever starts the world need not know its regions."""
    return f"gtm_serve_{hmac.digest(secret.encode(), region.encode(), 'sha256').hex()}"
