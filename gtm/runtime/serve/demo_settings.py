"""What the demo world's process is handed. Apart from it, so that whoever starts it loads no balancer."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from pathlib import Path


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
