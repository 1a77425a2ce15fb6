"""Each check of each backend made once, without a balancer: what `gtm balancer --check-backends` shows before one is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from gtm.balancer.config import BalancerDocument
from gtm.balancer.health.checks import Checks
from gtm.core.balance.health.health import BackendHealth
from gtm.runtime.balancer.backends_file import BackendNames
from gtm.runtime.balancer.front import Front
from gtm.runtime.balancer.health import health_settings

PATIENCE = 30.0
"""Seconds for all checks of all backends, beyond which what is missing is not known."""
_NAMES = 10.0
"""Seconds for names to be looked up."""


class TriedBackend(NamedTuple):
    """What one round has found of a backend: whether requests would be sent there, what is wrong by check, and the models that it lists."""

    url: str
    healthy: bool
    problems: Mapping[str, str]
    models: tuple[str, ...]


async def tried(file: BalancerDocument) -> list[TriedBackend]:
    """Make each check of each backend once.

    Args:
        file: what a balancer's file says.

    Raises:
        TlsError: a file of a certificate cannot be used.
    """
    now = asyncio.get_running_loop().time
    names = BackendNames()
    await names.look(file, _NAMES)
    document = names.applied(file, ())
    await names.close()
    front, backends = Front(document), document.servers()
    health = BackendHealth(health_settings(document), backends, now())
    checks = Checks(document.checks, health, lambda: None, http2=front.http2)
    checks.update(((one, front.route(one.name)) for one in backends), document.own_checks())
    try:
        await checks.first_round(PATIENCE)
        health.tick(now())
        problems = checks.problems()
        found = ((one.name, health.condition(one.name, now())) for one in backends)
        return [
            TriedBackend(name, known.healthy, problems[name], tuple(sorted(known.models or ())))
            for name, known in found
        ]
    finally:
        await checks.stop()
