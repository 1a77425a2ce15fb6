"""What one asks of control, however much at once, and what others get meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest

from gtm.core.model.access import Role
from gtm.storage.locks import Lock
from tests.api.conftest import TOKENS, UNBOUNDED, Api

pytestmark = pytest.mark.anyio


@contextmanager
def holding(url: str, statement: str) -> Iterator[None]:
    """Another session of the database has what a statement takes, until the end of the block."""
    with psycopg.connect(url) as other:
        other.execute(statement)  # type: ignore[call-overload]  # each is written below
        yield


POLICY_LOCK = f"SELECT pg_advisory_xact_lock({int(Lock.POLICY)})"


async def test_writers_wait_in_front_of_the_database(api: Api) -> None:
    """Hundreds of changes by one: reads go on, another's change comes soon, and who cannot wait is told the true cause."""
    answers: list[httpx.Response] = []
    limits = httpx.Limits(max_connections=300)

    def bearer(role: Role) -> dict[str, str]:
        return {"Authorization": f"Bearer {TOKENS[role]}"}

    async with httpx.AsyncClient(base_url=api.url, trust_env=False, timeout=60, limits=limits) as client:

        async def put(role: Role, name: str) -> httpx.Response:
            answer = await client.put(f"/v1/tenants/{name}", json={}, headers=bearer(role))
            answers.append(answer)
            return answer

        with holding(api.database_url, POLICY_LOCK):
            crowd = [asyncio.create_task(put(Role.OPERATOR, f"crowd-{number}")) for number in range(200)]
            while len(answers) < 135:  # noqa: ASYNC110 - one has its turn, and 64 wait
                await asyncio.sleep(0.01)
            other = asyncio.create_task(put(Role.FENCE_ADMIN, "other"))
            for _ in range(12):  # more than there are connections to the database
                read = await client.get("/v1/tenants", headers=bearer(Role.VIEWER))
                assert read.status_code == 200
        await asyncio.gather(*crowd, other)
    found = Counter(one.status_code for one in answers)
    assert found[429] == 135
    # On a machine that is busy with more, some wait longer than a turn is waited for, and are told that.
    assert found[201] + found[503] == 66
    refused = answers[0]
    assert refused.headers["Retry-After"] == "2"
    assert refused.json()["detail"] == (
        "changes are made one after the other, and wait for their turn: 64 of yours do already; nothing was changed, try again"
    )
    done = [one for one in answers if one.status_code == 201]
    assert done.index(other.result()) < 5
    assert len(api.viewer.get("/v1/tenants", params={"limit": 1000}).json()["items"]) == found[201]


def test_a_lock_that_another_process_holds(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that has no time is not called one that cannot be reached."""
    monkeypatch.setattr("gtm.storage.locks.TIMEOUT", "50ms")
    with holding(api.database_url, POLICY_LOCK):
        refused = api.put("/v1/tenants/acme", {})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    assert "busy with others' work: nothing was changed" in refused.json()["detail"]
    api.must_put("/v1/tenants/acme", {})


async def test_strangers_wait_for_each_other(api: Api) -> None:
    """Tokens that nobody knows are looked up a few at a time; those with a good one notice nothing."""
    async with httpx.AsyncClient(
        base_url=api.url, trust_env=False, timeout=60, limits=httpx.Limits(max_connections=300)
    ) as client:
        answers: list[int] = []

        async def ask(number: int) -> None:
            answer = await client.get("/v1/tenants", headers={"Authorization": f"Bearer gtm_{number}"})
            answers.append(answer.status_code)

        with holding(api.database_url, "LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE"):
            crowd = [asyncio.create_task(ask(number)) for number in range(150)]
            while len(answers) < 150 - 64 - 3:  # noqa: ASYNC110 - three are looked up, and 64 wait
                await asyncio.sleep(0.01)
            for _ in range(12):
                assert (await asyncio.to_thread(api.viewer.get, "/v1/tenants")).status_code == 200
        await asyncio.gather(*crowd)
    assert Counter(answers) == {429: 150 - 64 - 3, 401: 64 + 3}


def test_readiness_is_asked_once_for_all(api: Api) -> None:
    """However many ask at a time whether the database answers, it is asked once."""
    context = api.server.app.state.context
    asked, pings, crowd = 0, 0, 50
    look, ping = context.replica.watch.ping, context.database.ping

    async def counted() -> object:
        nonlocal asked
        asked += 1
        return await look()

    async def held() -> None:
        nonlocal pings
        pings += 1
        while asked < crowd:  # noqa: ASYNC110 - until all have come
            await asyncio.sleep(0.01)
        await ping()

    context.replica.watch.ping, context.database.ping = counted, held

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=api.url, trust_env=False, timeout=UNBOUNDED) as client:
            await asyncio.gather(*(client.get("/readyz") for _ in range(crowd)))

    asyncio.run(ask())
    # Control looks by itself, too: it may be the first to ask, and again after the last.
    assert pings <= 3
