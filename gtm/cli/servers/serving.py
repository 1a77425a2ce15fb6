"""`gtm serve`, once its options are read: a process that loads no command line, and has a fork server from its birth."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gtm.cli.common.exits import CommandError
from gtm.cli.servers.running import run_with_database
from gtm.runtime.process import forkserver
from gtm.runtime.process.handed import document, received
from gtm.runtime.serve.handed import common
from gtm.settings import ServeSettings

if TYPE_CHECKING:
    from gtm.runtime.process.lifeline import Lifeline
    from gtm.runtime.serve.supervisor import Running


@dataclass(frozen=True, slots=True)
class _Told:
    """`program` is what was called."""

    program: str
    settings: ServeSettings


def start(settings: ServeSettings) -> None:
    """Serve until told to stop.

    Raises:
        CommandError: it cannot.
    """
    told = _Told(sys.argv[0], settings)
    try:
        forkserver.become(__name__, common(settings), document(told))
    except OSError as error:
        raise CommandError(f"cannot start: {error.strerror}") from error
    _serve(told)


def _serve(told: _Told) -> None:
    from gtm.runtime.process.logs import configure
    from gtm.runtime.serve.supervisor import Supervisor

    async def announce(running: Running, lifeline: Lifeline) -> bool:
        """What prints it ends with it, and what that takes to load."""
        process = await lifeline.spawn(["gtm.cli.servers.welcome", told.program], document(running))
        return await process.wait() == 0

    configure(told.settings.control.log_level, "serve")
    run_with_database(Supervisor(told.settings, announce).run())


def main() -> None:
    """Serve as this process was handed."""
    try:
        _serve(received(_Told))
    except CommandError as error:
        from gtm.cli.common.output import end

        end(error)
