"""Work on what strangers wrote, in processes of their own: bounded in number, memory and time, and killed past a bound."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field

from gtm.control.errors import ContentTooLarge, Unavailable
from gtm.control.policy.drafts import DraftJob, DraftText, understood
from gtm.environment import inherited

AT_WORK = 2
"""Processes at once."""
WAITING = 8
"""Jobs that wait for one of them to end; more are turned away."""
MEMORY = 1024
"""MiB that a job may take."""
PROCESSOR = 30
"""Seconds of a processor that a job may take."""
PATIENCE = 120.0
"""Seconds by the clock until it is given up."""

WAIT = 30.0
"""Seconds that a job may wait for its turn."""

_RETRY_AFTER = {"Retry-After": "10"}
_NICE = 10
"""Feeds, plans and changes come first."""
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(slots=True, eq=False)
class Apart:
    """The processes of one control process.

    Args:
        memory: see `MEMORY`.
        processor: see `PROCESSOR`.
        patience: see `PATIENCE`.
        wait: see `WAIT`.
    """

    memory: int = MEMORY
    processor: int = PROCESSOR
    patience: float = PATIENCE
    wait: float = WAIT
    _slots: asyncio.Semaphore = field(init=False, default_factory=lambda: asyncio.Semaphore(AT_WORK))
    _present: int = field(init=False, default=0)

    async def run(self, job: DraftJob | DraftText) -> bytes:
        """Do a job; the answer as JSON.

        Raises:
            ContentTooLarge: it takes more memory or time than a job may.
            Unavailable: too many wait already, its turn did not come, or it came to no end.
            ControlError: as the job raised it.
            PolicyError: likewise.
        """
        if self._present >= AT_WORK + WAITING:
            raise Unavailable(
                f"{self._present} drafts are being looked at or wait: try again", headers=_RETRY_AFTER
            )
        self._present += 1
        try:
            await self._turn()
            try:
                return understood(await self._said(await asyncio.to_thread(pickle.dumps, job)))
            finally:
                self._slots.release()
        finally:
            self._present -= 1

    async def _turn(self) -> None:
        """Wait for one of the slots, to be released afterwards."""
        try:
            async with asyncio.timeout(self.wait):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable(
                f"{AT_WORK} other drafts have been looked at for {self.wait:g} s, and this one's turn did not come: "
                "try again",
                headers=_RETRY_AFTER,
            ) from None

    async def _said(self, job: bytes) -> bytes:
        """The bytes that the process answers to a job."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"import os, sys; os.nice({_NICE}); from gtm.control.policy.drafts import main; "
            "main(sys.stdin.buffer, sys.stdout.buffer)",
            str(self.memory * 1024 * 1024),
            str(self.processor),
            stdin=PIPE,
            stdout=PIPE,
            env={**inherited(), **_THREADS},
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(job), self.patience)
        except TimeoutError:
            raise Unavailable(
                f"the draft was not looked through within {self.patience:g} s: try again, or a smaller one",
                headers=_RETRY_AFTER,
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if said == b"2":
            raise ContentTooLarge(f"the draft takes more than the {self.memory} MiB of memory that it may")
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise ContentTooLarge(
                f"the draft takes more than the {self.processor} s of a processor that it may"
            )
        if process.returncode != os.EX_OK or not said:
            raise Unavailable(
                "the draft could not be looked at; control's log says why", headers=_RETRY_AFTER
            )
        return said
