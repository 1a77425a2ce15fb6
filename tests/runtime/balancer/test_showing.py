"""What a balancer shows control of model servers and tenants: all of it within bounds, what is wrong first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gtm.feed.reports import MAX_SHOWN, MAX_SHOWN_NAMES, MAX_SHOWN_TEXT, MAX_SHOWN_TEXTS
from gtm.runtime.balancer.showing import Showing


def _server(number: int, **changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "url": f"http://server-{number}",
        "state": "up",
        "why": "",
        "usable": True,
        "problems": {},
        "in_flight": 0,
        "outstanding": 0.0,
        "work_s": 0.0,
        "slots": 8,
        "memory": None,
        "models": None,
        "adapters": None,
        "version": "",
        "ejections": 0,
    }
    return {**usual, **changes}


def _tenant(**changes: Any) -> dict[str, Any]:
    usual = {"weight": 1.0, "running": 0, "waiting": 0, "requests": 0, "errors": 0, "refused": 0}
    return {**usual, **changes}


class _Balancer:
    """One whose state and clock are set."""

    def __init__(self) -> None:
        self.at = 100.0
        self.known: dict[str, Any] = {"backends": [], "tenants": {}}
        self.showing = Showing(self.state, lambda: self.at)

    async def state(self) -> dict[str, Any]:
        return self.known


def test_rates_are_of_the_time_between_two_looks() -> None:
    """What is counted grows; where it falls, a worker has ended. Each look is shown once."""

    async def looked() -> None:
        balancer = _Balancer()
        showing = balancer.showing
        assert showing.take() is None
        balancer.known["tenants"] = {"acme": _tenant(requests=10, refused=4), "": _tenant(requests=7)}
        await showing.look()
        first = showing.take()
        assert first is not None
        assert {one.requests_per_second for one in first.tenants} == {0.0}
        assert showing.take() is None
        balancer.at += 2
        balancer.known["tenants"] = {
            "acme": _tenant(requests=16, refused=5, errors=1, running=3),
            "": _tenant(requests=2),
        }
        await showing.look()
        found = showing.take()
        assert found is not None
        acme, others = found.tenants
        assert (acme.name, acme.running) == ("acme", 3)
        assert (acme.requests_per_second, acme.errors_per_second, acme.refused_per_second) == (3.0, 0.5, 0.5)
        assert others.requests_per_second == 0.0

    asyncio.run(looked())


def test_what_fails_here_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A look that fails is in the log, and the next one is made: whoever carries requests must not end for a page of the dashboard."""

    async def looked() -> None:
        balancer = _Balancer()
        del balancer.known["backends"]
        running = asyncio.ensure_future(balancer.showing.run())
        while not caplog.records:  # noqa: ASYNC110 - whatever it takes
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()

    asyncio.run(looked())
    assert "control is not shown the inside of the region" in caplog.text


def test_while_no_worker_answers_nothing_is_news() -> None:
    """What was shown stays, and grows old."""

    async def looked() -> None:
        balancer = _Balancer()
        balancer.known = {"backends": [], "tiers": {}, "workers": []}
        await balancer.showing.look()
        assert balancer.showing.take() is None

    asyncio.run(looked())


def test_what_is_wrong_is_shown_first_and_the_rest_is_counted() -> None:
    """However many servers there are, however long their names: control takes it."""

    async def looked() -> None:
        balancer = _Balancer()
        names = [f"model-{number}-{'x' * 400}" for number in range(30)]
        problems = {"health": "connection refused"}
        wrong = _server(900, state="ejected", why="5 failures in a row", usable=False, problems=problems)
        busy = _server(901, in_flight=7, models=names)
        balancer.known["backends"] = [*(_server(number) for number in range(400)), busy, wrong]
        balancer.known["tenants"] = {f"tenant-{number}": _tenant() for number in range(300)}
        await balancer.showing.look()
        found = balancer.showing.take()
        assert found is not None
        assert [one.url for one in found.servers[:2]] == ["http://server-900", "http://server-901"]
        assert found.servers[0].why == "5 failures in a row; connection refused"
        models = found.servers[1].models or ()
        assert len(models) == MAX_SHOWN_NAMES
        assert {len(name) for name in models} == {MAX_SHOWN_TEXT}
        assert (len(found.servers), found.servers_left_out) == (MAX_SHOWN, 402 - MAX_SHOWN)
        assert (len(found.tenants), found.tenants_left_out) == (MAX_SHOWN, 300 - MAX_SHOWN)
        balancer.known["backends"] = [_server(number, models=names) for number in range(400)]
        await balancer.showing.look()
        found = balancer.showing.take()
        assert found is not None
        assert found.texts() <= MAX_SHOWN_TEXTS
        assert len(found.servers) + found.servers_left_out == 400

    asyncio.run(looked())
