"""What the processes of `gtm serve` have in common, and so load once. What control alone needs it loads itself."""

from __future__ import annotations

from gtm.runtime.process.forkserver import Load
from gtm.settings import ServeSettings


def common(settings: ServeSettings) -> list[Load]:
    """What a fork server loads for them."""
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
