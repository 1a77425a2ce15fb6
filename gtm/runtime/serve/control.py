"""The control of a `gtm serve`: `python -m gtm.runtime.serve.control`, started by that only. It makes the database ready first."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from gtm.lockfile import LockFile, LockHeld
from gtm.runtime.process import pauses
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure
from gtm.runtime.serve.handed import LOCK, DatabaseReport, Preparing, ServedControl, region_token


def main() -> None:
    """Run the control that this process was handed."""
    with pauses.loading():
        from gtm.runtime.control.server import run_control
        from gtm.storage.errors import SchemaError, StorageUnavailable

    told = received(ServedControl)
    configure(told.settings.log_level, "control")
    lock = LockFile(told.settings.data_dir / LOCK)
    with suppress(LockHeld, OSError):  # an earlier start's that hangs has it; a disk that is full takes none
        lock.acquire()
    prepare = None if told.preparing is None else partial(_prepare, told.preparing, told.settings.data_dir)
    try:
        asyncio.run(run_control(told.settings, prepare))
    except (OSError, SchemaError, StorageUnavailable) as error:
        sys.exit(f"error: {(error.strerror if isinstance(error, OSError) else None) or error}")


async def _prepare(preparing: Preparing, data_dir: Path, url: str) -> None:
    from gtm.demo.policy import demo_policy, standing
    from gtm.runtime.control.prepare import FirstToken, prepare
    from gtm.storage.errors import SchemaError, StorageUnavailable

    regions = () if preparing.block is None else tuple(one.name for one in demo_policy().regions)
    try:
        admin_token = await prepare(
            url,
            first=FirstToken(data_dir),
            edge_token=preparing.edge_token,
            balancer_tokens={one: region_token(preparing.secret, one) for one in regions},
            policy=None if preparing.block is None else partial(standing, block=preparing.block),
            comment="demo world",
        )
    except (OSError, SchemaError, StorageUnavailable) as error:
        reason = f"cannot keep the first admin token: {error}" if isinstance(error, OSError) else str(error)
        wrong = DatabaseReport(error=reason, unreachable=isinstance(error, StorageUnavailable))
        wrong.tell(preparing.said)
        raise
    DatabaseReport(admin_token, regions).tell(preparing.said)


if __name__ == "__main__":
    main()
