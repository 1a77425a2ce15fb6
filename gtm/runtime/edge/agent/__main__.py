"""`python -m gtm.runtime.edge.agent`, started by `gtm serve` only."""

from __future__ import annotations

import asyncio
import sys

from gtm.geoip.reader import GeoIPError
from gtm.runtime.edge.agent.agent import Agent
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure
from gtm.settings import EdgeSettings


def main() -> None:
    """Run the edge that this process was handed."""
    settings = received(EdgeSettings)
    configure(settings.log_level, "edge")
    try:
        asyncio.run(_run(settings))
    except (OSError, GeoIPError) as error:
        sys.exit(f"error: {(error.strerror if isinstance(error, OSError) else None) or error}")


async def _run(settings: EdgeSettings) -> None:
    await Agent(settings).run()


if __name__ == "__main__":
    main()
