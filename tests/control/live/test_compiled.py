"""A policy is compiled once a process, and what is kept is what a fresh compilation says."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from gtm.control.live import compiled as module
from gtm.control.live.compiled import KEPT, compiled, with_history
from gtm.control.live.watch import DatabaseWatch
from gtm.control.policy.changes import Intent, apply, current_policy
from gtm.control.policy.safety import SafetyCheck
from gtm.control.policy.simulation import Situation
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import Member, Service
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.parts import DraftDocument
from gtm.documents.schema import PolicyDocument, export_policy
from gtm.feed.wire import SnapshotMessage
from gtm.storage.history.audit import CONTROL
from gtm.storage.session import Database
from tests import worlds
from tests.worlds import process


def _policy(price: float = 1.0) -> Policy:
    chat = Service("chat", members=(Member("de", weight=price),))
    return worlds.policy(worlds.region("de", Endpoint("http://127.0.0.1:1")), chat)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Policy]:
    """The policies that were really compiled, in order, from an empty memory on."""
    found: list[Policy] = []
    run = SnapshotMessage.compiled

    def counted(message: SnapshotMessage) -> object:
        found.append(message.policy)
        return run(message)

    for price in range(KEPT):  # what other tests left makes room for these
        compiled(_policy(1000.0 + price))
    monkeypatch.setattr(SnapshotMessage, "compiled", counted)
    return found


@pytest.mark.anyio
async def test_the_policy_in_force_is_read_once_and_never_of_another_revision(database_url: str) -> None:
    """What is kept is what the rows say, after each change and each way back."""
    database = Database(database_url)
    assert await current_policy(database) == (Policy(), 0)
    seen = []
    for revision, price in enumerate((1.0, 2.0, 1.0), 1):
        wanted = PolicyDocument.model_validate(export_policy(_policy(price)))
        await apply(database, DraftDocument(policy=wanted), Intent(CONTROL))
        for _ in range(2):
            policy, number = await current_policy(database)
            async with database.transaction() as transaction:
                assert (policy, number) == (await transaction.policy.load(), revision)
            seen.append(policy)
    assert seen[0] is seen[1]
    assert seen[0] != seen[2]
    assert seen[0] == seen[4]
    assert seen[0] is not seen[4], "one is kept"
    await database.dispose()


@pytest.mark.anyio
async def test_a_change_is_compiled_once(database_url: str, compilations: list[Policy]) -> None:
    """Dry run, safety rules, writing, reading back and publishing take one compilation; so does the way back none."""
    database = Database(database_url)
    replica = process.replica(database)

    async def present() -> Situation:
        return Situation(0.0, State(1))

    intent = Intent(CONTROL, check=SafetyCheck(present, 1.0))
    for policy, expected in ((_policy(), 2), (_policy(2.0), 3), (_policy(), 3)):
        document = PolicyDocument.model_validate(export_policy(policy))
        await apply(database, DraftDocument(policy=document), intent, dry_run=True)
        await apply(database, DraftDocument(policy=document), intent)
        await replica.watch.refresh()
        assert isinstance(replica.watch, DatabaseWatch)
        assert (
            len(compilations) == expected
        )  # the first also compiles the empty policy, as what there was before
    assert replica.now.compiled is not None
    assert (replica.now.compiled.revision, replica.now.revision) == (3, 3)
    await database.dispose()


def test_it_is_the_same_as_compiled_anew(compilations: list[Policy]) -> None:
    """However often it is asked for, by whatever number; and few are kept."""
    for price in (1, 1.0, 2.0, 3.0, 4.0, 1.0):
        fresh = compile_policy(_policy(float(price)), shipped_jurisdictions(), revision=7)
        assert compiled(_policy(price), revision=7) == fresh
    assert [one.services[0].members[0].weight for one in compilations] == [1.0, 2.0, 3.0, 4.0, 1.0]


def test_what_does_not_compile_is_said_each_time(compilations: list[Policy]) -> None:
    """And is not kept."""
    wrong = replace(_policy(), services=(Service("chat", members=(Member("fr"),)),))
    for _ in range(2):
        with pytest.raises(PolicyError, match="fr"):
            compiled(wrong)
    assert len(compilations) == 2
    (region,) = _policy().regions
    unsendable = replace(_policy(), regions=(replace(region, lat=float("nan"), country="XX"),))
    with pytest.raises(PolicyError, match="XX"):
        compiled(unsendable)
    assert len(compilations) == 2, "nothing that could be sent was compiled"


def test_past_law_is_that_of_the_policy_asked_about() -> None:
    """Of one policy after the other, also of the same revision, the answer is what a fresh compilation says; one is kept."""
    snapshots = [compile_policy(_policy(price), shipped_jurisdictions(), revision=7) for price in (1.0, 2.0)]
    past = shipped_jurisdictions(history=True)
    found = []
    for snapshot in (*snapshots, *snapshots, snapshots[1]):
        found.append(with_history(snapshot))
        assert found[-1] == compile_policy(snapshot.policy, past, revision=7)
    assert found[4] is found[3]
    assert found[2] is not found[0]


@pytest.mark.drill
def test_what_is_kept_is_no_matter_of_the_collector(compilations: list[Policy]) -> None:
    """It looks neither through what is kept nor, after some compilations, past the garbage of before."""
    assert not compilations
    snapshot = compiled(_policy())
    assert not any(one is snapshot for one in gc.get_objects())
    ring: list[object] = []
    ring.append(ring)
    ended = weakref.ref(_Held(ring))
    del ring
    for price in range(2, module.COLLECT_EVERY + 2):
        compiled(_policy(float(price)))
    assert ended() is None


class _Held:
    """Garbage: in a cycle, so that only the collector finds it."""

    def __init__(self, ring: list[object]) -> None:
        ring.append(self)
