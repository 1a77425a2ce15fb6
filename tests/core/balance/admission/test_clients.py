"""Networks of one tenant, or of none, take turns in the queue, and none fills it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.admission.values import AdmissionRefusal, Arrival, Ticket, TicketState
from gtm.core.model.services import Priority
from tests.effort import examples

_LOW = Arrival(Priority.BATCH)


def _offered(admission: Admission, client: str, arrival: Arrival = _LOW) -> Ticket | AdmissionRefusal:
    return admission.offer(arrival, 0.0, lambda: client)


def _waits(found: Ticket | AdmissionRefusal) -> Ticket:
    assert isinstance(found, Ticket), found
    return found


def _served(admission: Admission, running: Ticket) -> Ticket:
    """The one that begins when the one slot is free."""
    admission.release(running, 0.0)
    (begun,) = (ticket for ticket in admission.due(0.0) if ticket.state is TicketState.ADMITTED)
    return begun


def test_who_has_thousands_waiting_keeps_another_from_one_turn() -> None:
    """Without tenants, one network fills the queue with what it sent before: whoever comes then is served next but one."""
    admission = Admission(AdmissionSettings(queue_length=10_000), limit=1)
    running = _waits(_offered(admission, "flood"))
    for _ in range(10_000):
        _waits(_offered(admission, "flood"))
    honest = [_waits(_offered(admission, "honest")) for _ in range(3)]
    order = []
    for _ in range(8):
        running = _served(admission, running)
        order.append("honest" if running in honest else "flood")
    assert order == ["flood", "honest"] * 3 + ["flood"] * 2


def test_who_fills_the_queue_gives_way_to_those_who_have_less() -> None:
    """Request for request, the newest first, until those have more than half as much; then what comes is refused."""
    admission = Admission(AdmissionSettings(queue_length=100), limit=0)
    admission.resize(0, 0.0, usable=True)
    first = _waits(_offered(admission, "first"))
    flood = [_waits(_offered(admission, "flood")) for _ in range(99)]
    assert isinstance(_offered(admission, "flood"), AdmissionRefusal)
    honest = [_offered(admission, "honest") for _ in range(100)]
    held = [one for one in honest if isinstance(one, Ticket) and one.waiting]
    left = [ticket.waiting for ticket in flood]
    assert left == [True] * (99 - len(held)) + [False] * len(held)
    assert first.waiting
    assert 2 * len(held) > sum(left) >= len(held)
    assert {ticket.refusal.code for ticket in flood if ticket.refusal is not None} == {"preempted"}
    assert admission.waiting == 100


def test_large_bodies_count_for_what_they_hold() -> None:
    """One request of a hundredth of the bytes is as much as a hundredth of the places."""
    admission = Admission(AdmissionSettings(queue_length=100, queue_bytes=1_000_000), limit=0)
    admission.resize(0, 0.0, usable=True)
    large = Arrival(Priority.BATCH, body_bytes=100_000)
    for _ in range(10):
        _waits(_offered(admission, "flood", large))
    assert isinstance(_offered(admission, "flood", large), AdmissionRefusal)
    assert _waits(_offered(admission, "honest", large)).waiting
    assert sum(tier.waiting_bytes for tier in admission.snapshot().tiers.values()) == 1_000_000
    small = Admission(AdmissionSettings(queue_length=20, queue_bytes=1_000_000), limit=0)
    small.resize(0, 0.0, usable=True)
    for _ in range(9):
        _waits(_offered(small, "large", large))
    few = [_waits(_offered(small, "few")) for _ in range(11)]
    assert _waits(_offered(small, "few")).waiting
    assert all(ticket.waiting for ticket in few), "of the one with fewer bytes one gave way"


def test_tenants_come_first() -> None:
    """A tenant's share does not grow with its networks: two tenants are served in turns, one of them from many."""
    admission = Admission(AdmissionSettings(), limit=1)
    running = _waits(admission.offer(Arrival(tenant="z"), 0.0))
    for number in range(50):
        _waits(admission.offer(Arrival(tenant="a"), 0.0, lambda number=number: number))  # type: ignore[misc]
    for _ in range(10):
        _waits(admission.offer(Arrival(tenant="b"), 0.0, lambda: 0))
    served: Counter[str | None] = Counter()
    for _ in range(20):
        running = _served(admission, running)
        served[running.arrival.tenant] += 1
    assert served == {"a": 10, "b": 10}


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.sampled_from("oooorw"), st.integers(0, 3), st.sampled_from([0, 0, 10, 400]), st.integers(0, 50)
        ),
        max_size=120,
    )
)
def test_whatever_comes_networks_are_served_in_turns(steps: list[tuple[str, int, int, int]]) -> None:
    """While two wait, neither is served twice without the other; the queue keeps its bounds; who is refused has half as much as anybody, at least."""
    admission = Admission(AdmissionSettings(queue_length=8, queue_bytes=1000), limit=1)
    running = _waits(admission.offer(_LOW, 0.0))
    waiting: list[Ticket] = []
    since: dict[int, set[int]] = {}
    for what, client, size, which in steps:
        waiting = [ticket for ticket in waiting if ticket.waiting]
        if what == "o":
            arrival = Arrival(Priority.BATCH, body_bytes=size)
            found = admission.offer(arrival, 0.0, lambda client=client: client)  # type: ignore[misc]
            units = 1 + size * 8 // 1000
            had = [sum(one.units for one in waiting if one.client == other) for other in range(4)]
            for gone in waiting:
                if not gone.waiting:
                    assert 2 * had[gone.client] > max(had), "of one with little one gave way"  # type: ignore[index]
                    assert had[client] + units < had[gone.client]  # type: ignore[index]
            mine = units + sum(ticket.units for ticket in waiting if ticket.client == client)
            if isinstance(found, Ticket):
                waiting.append(found)
            elif sum(ticket.arrival.body_bytes for ticket in waiting) + size <= 1000:
                assert 2 * mine > max(had), found
        elif what == "w" and waiting:
            admission.withdraw(waiting.pop(which % len(waiting)), 0.0)
        elif what == "r" and waiting:
            running = _served(admission, running)
            waiting.remove(running)
            now = {ticket.client for ticket in waiting}
            for other in now:
                assert running.client not in since.get(other, set()) or other == running.client, (
                    "served twice"
                )  # type: ignore[arg-type]
                since.setdefault(other, set()).add(running.client)  # type: ignore[arg-type]
            since.pop(running.client, None)  # type: ignore[arg-type]
        waiting = [ticket for ticket in waiting if ticket.waiting]
        since = {other: seen for other, seen in since.items() if any(one.client == other for one in waiting)}
        assert admission.waiting == len(waiting) <= 8
        assert sum(ticket.arrival.body_bytes for ticket in waiting) <= 1000
