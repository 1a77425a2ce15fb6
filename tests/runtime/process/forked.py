"""What `test_forkserver` forks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from gtm.runtime.process import lifeline
from gtm.runtime.process.lifeline import Lifeline

LOADED: list[str] = []


def note(text: str) -> None:
    """Called in the fork server."""
    LOADED.append(text)


def main() -> None:
    """Say all about this process, and wait for the end of the lifeline."""
    say = json.load(sys.stdin)["say"]
    for path in sys.argv[1:]:
        if path.startswith("/"):
            with Path(path).open("a") as file:
                file.write(f"{os.getpid()}\n")
    found: dict[str, Any] = {
        "say": say,
        "loaded": LOADED,
        "arguments": sys.argv[1:],
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "lifeline": os.environ[lifeline.ENVIRONMENT],
        "descriptors": sorted(int(one.name) for one in list(Path("/proc/self/fd").iterdir()) if one.exists()),
        "random": random.random(),
        "collects": gc.isenabled(),
    }
    asyncio.run(_wait(found))


async def _wait(found: dict[str, Any]) -> None:
    ended = asyncio.Event()
    lifeline.watch(ended.set)
    ours = Lifeline()
    if "fork" in sys.argv:
        reading, writing = os.pipe()
        process = await ours.spawn(
            ["tests.runtime.process.forked"], json.dumps({"say": writing}).encode(), (writing,)
        )
        with os.fdopen(reading) as said:
            of_it = json.loads(await asyncio.to_thread(said.readline))
        found |= {
            "grandchild": process.pid,
            "grandchild_parent": of_it["parent"],
            "server": ours.forks.pid,
        }
    os.write(found["say"], json.dumps(found).encode() + b"\n")
    await ended.wait()


if __name__ == "__main__":
    main()
