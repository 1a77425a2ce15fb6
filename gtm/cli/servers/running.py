"""Running a server to its end. It loads nothing that a server does without."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gtm.cli.common.exits import CommandError, Exit


def run_server(
    server: Coroutine[Any, Any, None],
    *expected: type[Exception],
    run: Callable[[Coroutine[Any, Any, None]], None] | None = None,
) -> None:
    """Run a server to its end; what keeps it from running is one line, not a traceback."""
    import asyncio

    from gtm.feed.client import TokenRefused
    from gtm.geoip.reader import GeoIPError

    errors: tuple[type[Exception], ...] = (OSError, GeoIPError, *expected)
    try:
        (run or asyncio.run)(server)
    except TokenRefused as error:
        raise CommandError(str(error), Exit.NOT_ALLOWED) from error
    except errors as error:
        # An OSError's text begins with its number, which says nothing that its words do not.
        message = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CommandError(message, Exit.CANNOT_RUN) from error


def run_with_database(server: Coroutine[Any, Any, None]) -> None:
    """The same for what uses a database. An edge has no use for these imports, nor must it have their packages."""
    from gtm.demo.block import DemoError
    from gtm.storage.embedded import EmbeddedPostgresError
    from gtm.storage.errors import SchemaError, StorageUnavailable

    try:
        run_server(server, DemoError, EmbeddedPostgresError, SchemaError)
    except StorageUnavailable as error:
        raise CommandError(str(error), Exit.UNREACHABLE) from error
