from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gtm.core.model.access import Role
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import DataClass, Policy, Tenant
from gtm.core.model.regions import AdminState, Endpoint, Probe, Region
from gtm.core.model.services import Zone
from gtm.storage.edges import EdgeSighting
from gtm.storage.resources import PutOutcome
from gtm.storage.revisions import REVISION_CHANNEL
from gtm.storage.session import Database
from gtm.storage.tokens import TokenNameTaken

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


def region(name: str = "eu-central") -> Region:
    """A region as an operator might write it."""
    return Region(
        name, 50.11, 8.68, "DE", (Endpoint("https://eu.example", ipv4=("192.0.2.1",)),), models=("small",)
    )


def test_kinds_are_the_fields_of_a_policy() -> None:
    """A kind that is added to the policy gets a table."""
    assert list(KINDS) == list(Policy.__dataclass_fields__)


async def test_put_creates_updates_and_recognises_the_same(database: Database) -> None:
    """A put says what it did, and an equal one keeps version and times."""
    async with database.transaction() as tx:
        created, first = await tx.regions.put(region())
    async with database.transaction() as tx:
        unchanged, same = await tx.regions.put(region())
        updated, second = await tx.regions.put(replace(region(), display_name="Frankfurt"))
        found = await tx.regions.get("eu-central")
    assert (created, unchanged, updated) == (PutOutcome.CREATED, PutOutcome.UNCHANGED, PutOutcome.UPDATED)
    assert same == first
    assert second.version > first.version
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert found == second
    assert second.value.display_name == "Frankfurt"


async def test_many_are_put_in_one_go(database: Database) -> None:
    """As one by one: created or replaced, each with a version of its own, and with the time when it was created."""
    drained = replace(region("b"), admin_state=AdminState.DRAINING, lat=50)
    async with database.transaction() as tx:
        _, first = await tx.regions.put(region("b"))
        await tx.regions.put_all([])
    async with database.transaction() as tx:
        await tx.regions.put_all(item for item in (region("a"), drained, region("c")))
        found = await tx.regions.all()
    assert [one.value for one in found] == [region("a"), replace(drained, lat=50.0), region("c")]
    assert len({first.version, *(one.version for one in found)}) == 4
    assert min(one.version for one in found) > first.version
    assert found[1].created_at == first.created_at
    assert found[1].updated_at > first.updated_at
    async with database.transaction() as tx:
        assert [await tx.regions.put(one.value) for one in found] == [
            (PutOutcome.UNCHANGED, one) for one in found
        ]


async def test_true_and_one_differ(database: Database) -> None:
    """Values that Python holds equal but JSON does not count as a change."""
    async with database.transaction() as tx:
        await tx.regions.put(replace(region(), probe=Probe(json_field="ok", json_value=1)))
        outcome, stored = await tx.regions.put(
            replace(region(), probe=Probe(json_field="ok", json_value=True))
        )
    assert outcome is PutOutcome.UPDATED
    assert stored.value.probe.json_value is True


async def test_integers_in_float_fields_are_the_same_value(database: Database) -> None:
    """A latitude of 50 and one of 50.0 are no change."""
    async with database.transaction() as tx:
        await tx.regions.put(replace(region(), lat=50))
        outcome, stored = await tx.regions.put(replace(region(), lat=50.0))
    assert outcome is PutOutcome.UNCHANGED
    assert isinstance(stored.value.lat, float)


async def test_versions_never_repeat(database: Database) -> None:
    """Deleting and creating anew gives a version that no client has seen, in any kind."""
    versions = []
    async with database.transaction() as tx:
        for _ in range(3):
            versions.append((await tx.resources("tenants").put(Tenant("clinic")))[1].version)
            versions.append((await tx.resources("data_classes").put(DataClass("health")))[1].version)
            assert await tx.resources("tenants").delete("clinic")
            assert await tx.resources("data_classes").delete("health")
    assert len(set(versions)) == 6


async def test_admin_state_has_its_own_column(database: Database) -> None:
    """A region's admin state is stored, compared and loaded like the rest of it."""
    async with database.transaction() as tx:
        await tx.regions.put(region())
        outcome, _ = await tx.regions.put(replace(region(), admin_state=AdminState.DRAINING))
        policy = await tx.policy.load()
    assert outcome is PutOutcome.UPDATED
    assert policy.regions[0].admin_state is AdminState.DRAINING


async def test_delete_of_what_is_not_there(database: Database) -> None:
    """Deleting an unknown name says so."""
    async with database.transaction() as tx:
        assert not await tx.resources("services").delete("nobody")
        assert await tx.resources("services").get("nobody") is None


async def test_pages_are_in_code_point_order(database: Database) -> None:
    """Pages follow each other without gaps in the order in which Python sorts."""
    names = ["b", "a", "A", "a-b", "a_b", "ab", "é", "z", "10", "9"]
    async with database.transaction() as tx:
        for name in names:
            await tx.resources("tenants").put(Tenant(name))
        pages, after = [], None
        while page := await tx.resources("tenants").list(after, limit=3):
            pages += [stored.value.name for stored in page]
            after = pages[-1]
        everything = [stored.value.name for stored in await tx.resources("tenants").all()]
        policy = await tx.policy.load()
    assert pages == everything == [t.name for t in policy.tenants] == sorted(names)


async def test_a_failed_block_changes_nothing(database: Database) -> None:
    """A transaction that raises leaves no trace, and the error passes through."""

    async def fail() -> None:
        async with database.transaction() as tx:
            await tx.resources("zones").put(Zone("demo.test", "ns.demo.test", "admin.demo.test"))
            await tx.revisions.add(Policy(), author="me", comment="", summary={})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with database.transaction() as tx:
        assert await tx.policy.load() == Policy()
        assert await tx.revisions.latest() is None


async def test_policy_writers_wait_for_each_other(database: Database) -> None:
    """Revision numbers of many writers at once have no gaps and no repeats, rolled-back ones included."""

    async def write(n: int) -> int:
        try:
            async with database.transaction() as tx:
                await tx.policy.lock()
                revision = await tx.revisions.add(
                    Policy(tenants=(Tenant(str(n)),)), author="me", comment=str(n), summary={"created": n}
                )
                1 // (n % 3)  # every third writer fails
                return revision.number
        except ZeroDivisionError:
            return 0

    numbers = await asyncio.gather(*(write(n) for n in range(12)))
    assert sorted(n for n in numbers if n) == list(range(1, 9))


async def test_revisions(database: Database) -> None:
    """Revisions come back as they were, newest first, with the sum of their sorted document."""
    one = Policy(tenants=(Tenant("b"), Tenant("a")))
    two = replace(one, regions=(region(),))
    async with database.transaction() as tx:
        first = await tx.revisions.add(one, author="ann", comment="first", summary={"created": 2})
        second = await tx.revisions.add(two, author="bob", comment="", summary={"created": 1, "updated": 0})
    async with database.transaction() as tx:
        assert await tx.revisions.latest() == second
        assert await tx.revisions.list() == [second, first]
        assert await tx.revisions.list(before=2) == [first]
        assert await tx.revisions.list(limit=1) == [second]
        assert await tx.revisions.get(1) == first
        assert await tx.revisions.get(3) is None
        assert await tx.revisions.policy(3) is None
        assert await tx.revisions.policy(1) == replace(one, tenants=(Tenant("a"), Tenant("b")))
        again = await tx.revisions.add(
            replace(one, tenants=one.tenants[::-1]), author="", comment="", summary={}
        )
    assert first.sha256 == again.sha256 != second.sha256
    assert second.summary == {"created": 1, "updated": 0}
    assert (first.author, first.comment) == ("ann", "first")


async def test_listeners_hear_of_committed_revisions(database: Database) -> None:
    """A listener first learns that it listens, then each revision that is committed."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for payload in database.listen(REVISION_CHANNEL):
            heard.put_nowait(payload)

    listener = asyncio.create_task(listen())
    assert await heard.get() == ""
    for _ in range(2):
        async with database.transaction() as tx:
            await tx.revisions.add(Policy(), author="me", comment="", summary={})
    assert [await heard.get(), await heard.get()] == ["1", "2"]
    listener.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listener


async def test_tokens(database: Database) -> None:
    """Tokens are found by digest, listed by name, revoked once, and replaced by name."""
    digests = [hashlib.sha256(bytes([n])).digest() for n in range(3)]
    later = datetime(2040, 1, 1, tzinfo=UTC)
    async with database.transaction() as tx:
        edge = await tx.tokens.add("edge", Role.EDGE, digests[0], later)
        admin = await tx.tokens.add("admin", Role.ADMIN, digests[1])
        with pytest.raises(TokenNameTaken, match="`admin`"):
            await tx.tokens.add("admin", Role.VIEWER, digests[2])
        assert await tx.tokens.list() == [admin, edge]
        assert await tx.tokens.find_by_hash(digests[0]) == edge
        assert await tx.tokens.find_by_hash(digests[2]) is None
        assert (edge.role, edge.expires_at, edge.revoked_at) == (Role.EDGE, later, None)
    async with database.transaction() as tx:
        revoked = await tx.tokens.revoke("edge")
    async with database.transaction() as tx:
        assert await tx.tokens.revoke("edge") == revoked
        assert await tx.tokens.list() == [admin, revoked]
        assert await tx.tokens.revoke("nobody") is None
        replaced = await tx.tokens.replace("edge", Role.VIEWER, digests[2])
        assert await tx.tokens.find_by_hash(digests[0]) is None
        assert await tx.tokens.find_by_hash(digests[2]) == replaced
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert replaced.id != edge.id


async def test_live_tokens(database: Database) -> None:
    """Every token that is not revoked is found by its digest, and an id may be given."""
    digests = [hashlib.sha256(bytes([n])).digest() for n in range(3)]
    async with database.transaction() as tx:
        one = await tx.tokens.add("one", Role.EDGE, digests[0], token_id="first")
        two = await tx.tokens.add("two", Role.ADMIN, digests[1])
        await tx.tokens.revoke("one")
        assert await tx.tokens.live() == {digests[1]: two}
        again = await tx.tokens.replace("one", Role.VIEWER, digests[2], token_id="second")
        assert await tx.tokens.live() == {digests[1]: two, digests[2]: again}
    assert (one.id, again.id) == ("first", "second")


@pytest.mark.parametrize("second", ["rotate", "revoke"])
async def test_tokens_are_changed_one_after_the_other(database: Database, second: str) -> None:
    """Who replaces or revokes a token while another replaces it finds the new one, and leaves none too many."""
    digests = [hashlib.sha256(bytes([n])).digest() for n in range(3)]
    now = datetime.now(UTC)

    async def next_change() -> None:
        async with database.transaction() as tx:
            if second == "rotate":
                assert await tx.tokens.rotate(
                    "ci", digests[2], now, token_id="third", hands=lambda held: held
                )
            else:
                assert await tx.tokens.revoke("ci") is not None

    async with database.transaction() as tx:
        await tx.tokens.add("ci", Role.VIEWER, digests[0], token_id="first")
    async with database.transaction() as tx:
        await tx.tokens.rotate("ci", digests[1], now, token_id="second", hands=lambda held: held)
        waiting = asyncio.create_task(next_change())
        await asyncio.sleep(0.3)
        assert not waiting.done()
    await waiting
    async with database.transaction() as tx:
        assert [token.id for token in (await tx.tokens.live()).values()] == (
            ["third"] if second == "rotate" else []
        )


async def test_edges(database: Database) -> None:
    """Of each edge the latest report stands, whatever order reports arrive in."""
    start = datetime(2030, 1, 1, tzinfo=UTC)

    def report(name: str, seconds: int) -> EdgeSighting:
        return EdgeSighting(name, "0.1.0", "192.0.2.1", seconds, seconds, start + timedelta(seconds=seconds))

    async with database.transaction() as tx:
        await tx.edges.record([])
        await tx.edges.record([report("b", 1), report("a", 3), report("a", 2)])
        await tx.edges.record([report("a", 1), report("b", 9)])
        edges = await tx.edges.list()
    assert [(e.name, e.revision_applied, e.first_seen, e.last_seen) for e in edges] == [
        ("a", 3, start + timedelta(seconds=3), start + timedelta(seconds=3)),
        ("b", 9, start + timedelta(seconds=1), start + timedelta(seconds=9)),
    ]
