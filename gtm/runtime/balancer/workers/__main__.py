"""`python -m gtm.runtime.balancer.workers`, started by the balancer only."""

from __future__ import annotations

import uvloop

from gtm.runtime.balancer.workers.pool import BalancerWorker, WorkerSettings
from gtm.runtime.process import pauses, signals
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure
from gtm.runtime.process.privileges import conceal


def main() -> None:
    """Run the worker that this process was handed."""
    conceal()
    told = received(WorkerSettings)
    configure(told.balancer.log_level, f"balancer-{told.number}")
    signals.leave_to_parent()
    raise_descriptor_limit()
    pauses.shorten()
    uvloop.run(_run(told))


async def _run(told: WorkerSettings) -> None:
    await BalancerWorker(told).run()


if __name__ == "__main__":
    main()
