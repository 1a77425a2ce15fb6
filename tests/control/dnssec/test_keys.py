"""Keys in a real database: made once, rolled, carried to edges, and never lost to a mistake."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import text

from gtm.control.dnssec.keys import KeyBook
from gtm.control.dnssec.signing import ZoneStatus, ds_rdata, zone_status
from gtm.control.errors import Conflict, NotFound, Unavailable
from gtm.control.replica import Replica
from gtm.core.model.services import Zone
from gtm.core.signing.keys import CDNSKEY, CDS, DNSKEY, Keys, key_tag
from gtm.core.signing.rollover import DAY, HOUR, KeyRole, KeyState
from gtm.feed.current import CurrentView
from gtm.feed.sealing import Seal, SealingKey
from gtm.feed.wire import KeysMessage, SealedKeysMessage, SnapshotMessage, StateMessage, decode
from gtm.settings import DnssecSettings
from gtm.storage.dnssec import StoredZone
from gtm.storage.history.audit import CONTROL
from gtm.storage.session import Database
from tests.worlds import process

pytestmark = pytest.mark.anyio

KSK, ZSK = KeyRole.KSK, KeyRole.ZSK
READY_AFTER = DAY + HOUR
"""Seconds until a new zone may have a DS record."""


@dataclass
class World:
    """A database, a clock and a key file."""

    database: Database
    settings: DnssecSettings
    now: float = 1_800_000_000.0
    books: list[KeyBook] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def book(self, settings: DnssecSettings | None = None) -> KeyBook:
        """A control process."""
        return KeyBook(self.database, self.clock, settings or self.settings)

    def replica(self) -> Replica:
        """The whole of one."""
        return process.replica(
            self.database, replace(process.SETTINGS, dnssec_key_file=self.settings.key_file)
        )

    async def put(self, name: str = "demo.test", *, dnssec: bool = True) -> None:
        """Write a zone into the policy."""
        zone = Zone(name, f"ns1.{name}", f"hostmaster.{name}", dnssec=dnssec)
        async with self.database.transaction() as transaction:
            await transaction.resources("zones").put(zone)
            policy = await transaction.policy.load()
            await transaction.revisions.add(policy, author="test", comment="", summary={})

    async def zone(self, name: str = "demo.test") -> StoredZone:
        """What is stored of a zone."""
        return (await self.book().zones())[name]

    async def states(self, role: KeyRole) -> list[KeyState]:
        """The states of its keys of a role, oldest first."""
        return [one.key.state for one in (await self.zone()).keys if one.key.role is role]

    async def status(self, book: KeyBook) -> ZoneStatus:
        """What people see."""
        return zone_status(await self.zone(), book.times, asks=self.settings.resolver is not None)


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A database with a signed zone, whose keys are not made yet."""
    database = Database(database_url)
    found = World(database, DnssecSettings(tmp_path / "dnssec-key"))
    await found.put()
    yield found
    await database.dispose()


def tags(keys: Keys) -> dict[str, int]:
    """The signing key of each zone."""
    return {zone.zone: zone.key_tag for zone in keys.zones}


async def test_keys_are_made_for_signed_zones_alone(world: World) -> None:
    """A signed zone gets a key of each role, of which edges get the sets and one private key; an unsigned one gets none."""
    await world.put("plain.test", dnssec=False)
    book = world.book()
    await book.settle()
    (zone,) = book.keys.zones
    stored = await world.zone()
    ksk, zsk = (one.key for one in stored.keys)
    assert {ksk.role, zsk.role} == {KSK, ZSK}
    assert [one.rdtype for one in zone.sets] == [DNSKEY]
    assert set(zone.sets[0].rdatas) == {ksk.dnskey, zsk.dnskey}
    assert zone.private not in b"".join(one.sealed for one in stored.keys)
    before = book.keys
    await book.settle()
    assert book.keys is before


async def test_nothing_is_made_without_signed_zones(database_url: str, tmp_path: Path) -> None:
    """Who does not use DNSSEC needs no key file."""
    world = World(Database(database_url), DnssecSettings(tmp_path / "dnssec-key"))
    await world.put(dnssec=False)
    book = world.book()
    await book.settle()
    assert (book.keys, book.problem) == (Keys(), "")
    assert not world.settings.key_file.exists()
    await world.database.dispose()


async def test_several_processes_make_one_set_of_keys(world: World) -> None:
    """Control processes that start together on one database end up with the same keys."""
    books = [world.book() for _ in range(4)]
    await asyncio.gather(*(book.settle() for book in books))
    assert len({tags(book.keys)["demo.test"] for book in books}) == 1
    assert len((await world.zone()).keys) == 2


async def test_other_processes_take_in_what_one_did(world: World) -> None:
    """A change by one process is known to another after its next look at the database."""
    one, other = world.book(), world.book()
    await one.settle()
    async with world.database.transaction() as transaction:
        await other.refresh(transaction)
    assert other.keys == one.keys
    await one.roll("demo.test", ZSK, urgent=True, by=CONTROL)
    async with world.database.transaction() as transaction:
        await other.refresh(transaction)
    assert other.keys == one.keys
    assert len(other.keys.zones[0].sets[0].rdatas) == 3


async def test_signatures_are_made_anew_daily(world: World) -> None:
    """Sets are signed again after a day, and not before, with the same keys."""
    book = world.book()
    await book.settle()
    first = book.keys
    world.now += DAY - 1
    await book.settle()
    assert book.keys is first
    world.now += 1
    await book.settle()
    assert book.keys.version > first.version
    assert book.keys.zones[0].sets[0].rdatas == first.zones[0].sets[0].rdatas
    assert book.keys.zones[0].sets[0].signatures != first.zones[0].sets[0].signatures


async def test_a_zsk_rolls(world: World) -> None:
    """A roll by hand publishes the new key at once, signs with it a month later, and then drops the old one."""
    book = world.book()
    await book.settle()
    (old,) = tags(book.keys).values()
    await book.roll("demo.test", ZSK, urgent=False, by=CONTROL)
    assert tags(book.keys) == {"demo.test": old}
    assert await world.states(ZSK) == [KeyState.ACTIVE, KeyState.PUBLISHED]
    with pytest.raises(Conflict, match="is being replaced already"):
        await book.roll("demo.test", ZSK, urgent=False, by=CONTROL)
    world.now += 30 * DAY + HOUR
    await book.settle()
    assert tags(book.keys) != {"demo.test": old}
    assert await world.states(ZSK) == [KeyState.RETIRED, KeyState.ACTIVE]
    world.now += 31 * DAY
    await book.settle()
    assert await world.states(ZSK) == [KeyState.ACTIVE]


async def test_a_roll_can_be_hurried(world: World) -> None:
    """An urgent roll signs with the new key two hours later; a roll under way can be made urgent, once."""
    book = world.book()
    await book.settle()
    await book.roll("demo.test", ZSK, urgent=False, by=CONTROL)
    await book.roll("demo.test", ZSK, urgent=True, by=CONTROL)
    with pytest.raises(Conflict):
        await book.roll("demo.test", ZSK, urgent=True, by=CONTROL)
    world.now += 2 * HOUR
    await book.settle()
    assert await world.states(ZSK) == [KeyState.RETIRED, KeyState.ACTIVE]


async def test_a_ksk_rolls_by_hand(world: World) -> None:
    """A new key-signing key signs beside the old one, waits for its DS record, and then takes over."""
    book = world.book()
    await book.settle()
    status = await world.status(book)
    assert status.ds_from == datetime.fromtimestamp(world.now + READY_AFTER, UTC)
    with pytest.raises(Conflict, match="waits for its DS record now"):
        await book.ds_seen("demo.test", by=CONTROL)
    world.now += READY_AFTER
    await book.settle()
    assert [one.rdtype for one in book.keys.zones[0].sets] == [DNSKEY, CDS, CDNSKEY]
    assert "gtm dnssec roll demo.test --ds-seen" in (await world.status(book)).waits_for
    await book.ds_seen("demo.test", by=CONTROL)
    assert await world.states(KSK) == [KeyState.ACTIVE]
    assert (await world.status(book)).waits_for == ""
    before = (await world.status(book)).ds
    await book.roll("demo.test", KSK, urgent=False, by=CONTROL)
    assert (await world.status(book)).ds == before
    assert len(book.keys.zones[0].sets[0].signatures) == 2
    world.now += 31 * DAY
    await book.settle()
    assert (await world.status(book)).ds != before
    await book.ds_seen("demo.test", by=CONTROL)
    assert await world.states(KSK) == [KeyState.RETIRED, KeyState.ACTIVE]
    world.now += 32 * DAY
    await book.settle()
    assert await world.states(KSK) == [KeyState.ACTIVE]


async def test_the_parent_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a resolver, control sees the DS record itself, and takes no other key's for it."""
    world.settings = DnssecSettings(world.settings.key_file, resolver=("192.0.2.53", 53))
    book = world.book()
    await book.settle()
    world.now += READY_AFTER
    await book.settle()
    assert "control looks for it" in (await world.status(book)).waits_for
    answers: list[frozenset[bytes] | None] = [None, frozenset(), frozenset({b"other"})]

    async def asked(zone: str, resolver: tuple[str, int]) -> frozenset[bytes] | None:
        assert (zone, resolver) == ("demo.test", ("192.0.2.53", 53))
        return answers[0]

    monkeypatch.setattr("gtm.control.dnssec.keys.ds_records", asked)
    while answers:
        await book.ask_parents()
        assert await world.states(KSK) == [KeyState.READY]
        answers.pop(0)
    (ksk,) = [one.key for one in (await world.zone()).keys if one.key.role is KSK]
    answers = [frozenset({b"other", ds_rdata("demo.test", ksk.dnskey)})]
    await book.ask_parents()
    assert await world.states(KSK) == [KeyState.ACTIVE]
    answers = []
    await book.ask_parents()  # nothing waits, nobody is asked


async def test_a_zone_is_withdrawn_and_comes_back(world: World) -> None:
    """Withdrawing asks the parent to drop its DS records until told otherwise; keys outlive an unsigned time."""
    book = world.book()
    await book.settle()
    world.now += READY_AFTER
    await book.settle()
    await book.withdraw("demo.test", withdrawing=True, by=CONTROL)
    status = await world.status(book)
    assert (status.withdrawing, status.ds) == (True, ())
    assert "drop its DS records; 2 days after that" in status.waits_for
    cds = next(one for one in book.keys.zones[0].sets if one.rdtype == CDS)
    assert cds.rdatas == (bytes(5),)
    await world.put(dnssec=False)
    await book.settle()
    assert book.keys.zones == ()
    status = await world.status(book)
    assert (status.signed, status.ds, [key.next_at for key in status.keys]) == (False, (), [None, None])
    with pytest.raises(NotFound, match="set `dnssec: true`"):
        await book.withdraw("demo.test", withdrawing=False, by=CONTROL)
    before = [one.key.id for one in (await world.zone()).keys]
    world.now += 100 * DAY
    await world.put()
    await book.settle()
    assert [one.key.id for one in (await world.zone()).keys][:2] == before
    assert await world.states(KSK) == [KeyState.PUBLISHED]
    status = await world.status(book)
    assert (status.withdrawing, status.ds_from is not None) == (False, True)


async def test_a_wrong_key_file_changes_nothing(world: World) -> None:
    """With another key file, or none, nothing is made, rolled or signed; with the right one all goes on."""
    book = world.book()
    await book.settle()
    before, held = await world.zone(), book.keys
    right = world.settings.key_file.read_bytes()
    world.now += 2 * DAY
    await world.put("other.test")
    for wrong in (b64encode(bytes(32)), b"", None):
        if wrong is None:
            world.settings.key_file.unlink()
        else:
            world.settings.key_file.write_bytes(wrong)
        await book.settle()
        assert "key file" in book.problem
        assert book.keys == held
        with pytest.raises(Unavailable, match="key file"):
            await book.roll("demo.test", ZSK, urgent=True, by=CONTROL)
        fresh = world.book()
        async with world.database.transaction() as transaction:
            await fresh.refresh(transaction)
        assert (fresh.keys, "key file" in fresh.problem) == (Keys(), True)
    assert await world.book().zones() == {"demo.test": before}
    assert not world.settings.key_file.exists()
    world.settings.key_file.write_bytes(right)
    await book.settle()
    assert book.problem == ""
    assert set(tags(book.keys)) == {"demo.test", "other.test"}
    assert (await world.zone()).signed_at == world.now


async def test_a_lost_database_replaces_no_keys(world: World) -> None:
    """Where the database has lost a zone's keys under a running control, edges keep them, and none are made anew."""
    book = world.book()
    await book.settle()
    held = book.keys.zones
    async with world.database.transaction() as transaction:
        await transaction.connection.execute(text("DELETE FROM dnssec_zones"))
    world.now += 1
    await world.put("other.test")
    await book.settle()
    assert "lost the keys of `demo.test`" in book.problem
    assert held[0] in book.keys.zones
    assert set(tags(book.keys)) == {"demo.test", "other.test"}
    with pytest.raises(Unavailable, match="lost the keys"):
        await book.roll("demo.test", ZSK, urgent=True, by=CONTROL)
    assert set(await book.zones()) == {"other.test"}


async def test_a_database_changed_by_hand_stops_keys_alone(world: World) -> None:
    """Where stored keys make no sense, that is said, and nothing else fails by it."""
    await world.book().settle()
    for damage in ("state = 'retired' WHERE role = 'zsk'", "dnskey = '' WHERE role = 'zsk'"):
        async with world.database.transaction() as transaction:
            await transaction.connection.execute(text(f"UPDATE dnssec_keys SET {damage}"))  # noqa: S608
        replica = world.replica()
        await replica.watch.refresh()
        assert replica.now.message is not None
        assert (replica.now.keys, replica.dnssec.problem != "") == (Keys(), True)


async def test_no_private_key_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The log names keys by tag, as they come and go."""
    caplog.set_level("DEBUG")
    book = world.book()
    await book.settle()
    (zone,) = book.keys.zones
    assert f"ZSK {zone.key_tag} of zone `demo.test` is active" in caplog.text
    for secret in (zone.private.hex(), b64encode(zone.private).decode(), str(zone.private)):
        assert secret not in caplog.text


async def test_edges_have_keys_before_they_learn_of_a_signed_zone(world: World) -> None:
    """Through control and the feed, a current View has the keys of a zone no later than the policy that signs it."""
    replica = world.replica()
    await replica.watch.refresh()
    current = CurrentView(world.clock)
    key, token = SealingKey(), "gtm_of_an_edge"
    stream = replica.subscribers.stream(
        "edge-one", 0, seal=Seal(key.public, "edge-one", sha256(token.encode()).hexdigest())
    )
    kinds = []
    for line in (await anext(stream)).splitlines():
        message = decode(line)
        assert message is not None
        if isinstance(message, SealedKeysMessage):
            message = key.open(message, "edge-one", token)
        kinds.append(type(message))
        current.apply(message)
    assert [kind for kind in kinds if kind in (KeysMessage, SnapshotMessage, StateMessage)] == [
        KeysMessage,
        SnapshotMessage,
        StateMessage,
    ]
    assert current.keys == replica.now.keys
    (keys,) = current.keys.zones
    assert key_tag(keys.dnskey) == keys.key_tag
    await replica.dnssec.roll("demo.test", ZSK, urgent=True, by=CONTROL)
    update = decode(await anext(stream))
    assert isinstance(update, SealedKeysMessage)
    current.apply(key.open(update, "edge-one", token))
    (found,) = current.keys.zones
    assert len(found.sets[0].rdatas) == 3
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_look_is_taken_every_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The running book publishes what it made, and goes on after errors."""
    monkeypatch.setattr("gtm.control.dnssec.keys.EVERY", 0.001)
    published = asyncio.Event()
    book = KeyBook(world.database, world.clock, world.settings, lambda _: published.set())
    failures = iter([OSError("broken")])
    settle = book.settle

    async def failing() -> None:
        for failure in failures:
            raise failure
        await settle()

    monkeypatch.setattr(book, "settle", failing)
    running = asyncio.ensure_future(book.run())
    await asyncio.wait_for(published.wait(), 30)
    running.cancel()
    assert set(tags(book.keys)) == {"demo.test"}
