"""What a balancer shows control of the inside of its region: its model servers, and its tenants, now and then and within bounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from gtm.core.balance.health.values import BackendState
from gtm.feed.reports import (
    MAX_SHOWN,
    MAX_SHOWN_NAMES,
    MAX_SHOWN_TEXT,
    MAX_SHOWN_TEXTS,
    RegionShown,
    ServerShown,
    TenantShown,
)
from gtm.runtime.process.clocks import boot_time

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two looks."""
_COUNTS = ("requests", "errors", "refused")


class Showing:
    """See above.

    Args:
        state: what the balancer's own page shows (`gtm.runtime.balancer.admin`).
        now: seconds that never step back.
    """

    def __init__(
        self, state: Callable[[], Awaitable[dict[str, Any]]], now: Callable[[], float] = boot_time
    ) -> None:
        self._state = state
        self._now = now
        self._newest: RegionShown | None = None
        self._before: tuple[Mapping[str, Mapping[str, float]], float] | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # a page without numbers is no reason to end a balancer
                logger.exception("control is not shown the inside of the region")
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Look once. Rates are of the time since the look before."""
        state, now = await self._state(), self._now()
        if "tenants" not in state:
            return  # no worker answers
        tenants = state["tenants"]
        before, then = self._before or (tenants, now)
        self._before = tenants, now
        self._newest = _fitting(
            [_server(one) for one in state["backends"]],
            [_tenant(name, one, before.get(name, {}), now - then) for name, one in tenants.items()],
        )

    def take(self) -> RegionShown | None:
        """What the next report shows; None: it was shown already."""
        newest, self._newest = self._newest, None
        return newest


def _server(one: Mapping[str, Any]) -> ServerShown:
    return ServerShown(
        url=_text(one["url"]),
        state=one["state"],
        why=_text("; ".join(filter(None, (one["why"], *one["problems"].values())))),
        usable=one["usable"],
        in_flight=one["in_flight"],
        outstanding=round(one["outstanding"], 1),
        work_s=round(max(0.0, one["work_s"]), 1),
        slots=one["slots"],
        memory=None if one["memory"] is None else round(one["memory"], 4),
        models=_names(one["models"]),
        adapters=_names(one["adapters"]),
        version=_text(one["version"]),
        ejections=one["ejections"],
    )


def _tenant(name: str, one: Mapping[str, float], before: Mapping[str, float], seconds: float) -> TenantShown:
    # A worker that has ended takes its counts along.
    ended, errors, refused = (
        max(0.0, one[count] - before.get(count, 0)) / seconds if seconds > 0 else 0.0 for count in _COUNTS
    )
    running, waiting = int(one["running"]), int(one["waiting"])
    return TenantShown(_text(name), one["weight"], running, waiting, ended, errors, refused)


def _text(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_TEXT else f"{text[: MAX_SHOWN_TEXT - 1]}…"


def _names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(_text(name) for name in sorted(names)[:MAX_SHOWN_NAMES])


def _fitting(servers: list[ServerShown], tenants: list[TenantShown]) -> RegionShown:
    """What a report has place for: first the servers that something is wrong with, and the tenants with most."""
    servers.sort(key=lambda one: (one.state == BackendState.UP, -one.in_flight, one.url))
    tenants.sort(
        key=lambda one: (
            -one.running - one.waiting,
            -one.requests_per_second - one.refused_per_second,
            one.name,
        )
    )
    shown, named = servers[:MAX_SHOWN], tenants[:MAX_SHOWN]
    while True:
        left_out = len(servers) - len(shown), len(tenants) - len(named)
        found = RegionShown(tuple(shown), tuple(named), *left_out)
        if found.texts() <= MAX_SHOWN_TEXTS:
            return found
        shown, named = shown[: len(shown) // 2], named[: len(named) // 2]
