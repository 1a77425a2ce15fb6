"""What the demo world's process is handed. Apart from it, so that whoever starts it loads no balancer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """A region: its name, its slots, and the token (role `balancer`) of its balancer."""

    name: str
    slots: int
    token: str


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """What the world is handed.

    `switch` is the descriptor of the listening socket of the block's switch address, which the parent holds too. The regions'
    balancers follow `control_url`, and keep what must last in `data_dir`.
    """

    block: int
    switch: int
    regions: tuple[RegionSettings, ...]
    control_url: str
    data_dir: Path
