"""Groups of servers at admission: a queue for some servers holds nobody back from others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.rooms import GroupLimits
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.admission.values import AdmissionRefusal, Arrival, Ticket, TicketState
from gtm.core.balance.groups import ONE_GROUP, ServerGroups, groups_of
from gtm.core.model.services import Priority
from tests.core.balance.test_groups import _server

APART = groups_of([_server("a", "chat"), _server("b", "embed")])
INSIDE = groups_of([_server("a", "chat"), _server("b", "chat embed")])
OVER = groups_of([_server("a", "chat"), _server("b", "chat embed"), _server("c", "embed")])
BATCH = Priority.BATCH


def _limits(groups: ServerGroups, slots: dict[str, int | None]) -> GroupLimits:
    """The limits of groups whose servers have so many slots each."""
    found = [[slots[name] for name in names] for names in groups.servers]
    return GroupLimits(
        groups,
        tuple(None if None in of_it else sum(one or 0 for one in of_it) for of_it in found),
        tuple(any(one != 0 for one in of_it) for of_it in found),
    )


def _admission(groups: ServerGroups, **slots: int | None) -> Admission:
    admission = Admission()
    limits = _limits(groups, slots)
    admission.resize(sum(one or 0 for one in slots.values()), 0.0, parts=limits)
    return admission


def _offer(admission: Admission, model: str | None, now: float = 0.0, **more: object) -> Ticket:
    found = admission.offer(Arrival(model=model, **more), now)  # type: ignore[arg-type]
    assert isinstance(found, Ticket), found
    return found


def _state(tickets: list[Ticket]) -> list[str]:
    return [ticket.state.value for ticket in tickets]


def test_a_queue_for_chats_holds_no_embedding_back() -> None:
    """Nor does an idle server for embeddings let a chat begin."""
    admission = _admission(APART, a=1, b=1)
    chats = [_offer(admission, "chat") for _ in range(4)]
    assert _state(chats) == ["admitted", "waiting", "waiting", "waiting"]
    embedding = _offer(admission, "embed")
    assert embedding.state is TicketState.ADMITTED
    admission.release(embedding, 1.0)
    assert not admission.due(1.0)  # its slot is none for a chat
    admission.release(chats[0], 2.0)
    assert admission.due(2.0) == [chats[1]]
    assert (admission.running, admission.waiting) == (1, 2)
    assert dict(zip(APART.servers, admission.uses.values(), strict=True)) == {
        frozenset("a"): (1, 2),
        frozenset("b"): (0, 0),
    }
    assert _state([_offer(admission, "embed", 2.0), _offer(admission, "chat", 2.0)]) == [
        "admitted",
        "waiting",
    ]


def test_each_group_keeps_what_its_tiers_reserve() -> None:
    """A burst of batch work at the chat server leaves real-time chats their part of that server, whatever is idle elsewhere."""
    admission = _admission(APART, a=10, b=30)
    for _ in range(20):
        _offer(admission, "chat", priority=BATCH)
    assert admission.snapshot().tiers[BATCH].running == 7
    assert _offer(admission, "chat").state is TicketState.ADMITTED


def test_a_server_in_two_groups_is_filled_once() -> None:
    """What runs for either model counts in the set of all of its servers."""
    admission = _admission(INSIDE, a=2, b=1)
    embeds = [_offer(admission, "embed") for _ in range(2)]
    assert _state(embeds) == ["admitted", "waiting"]
    chats = [_offer(admission, "chat") for _ in range(3)]
    assert _state(chats) == ["admitted", "admitted", "waiting"]
    admission.release(embeds[0], 1.0)
    assert admission.due(1.0) == [embeds[1]]  # it came first, and both could begin
    admission.release(chats[0], 2.0)
    assert admission.due(2.0) == [chats[2]]


def test_a_request_that_names_no_model_takes_room_where_room_is() -> None:
    """It may go to any."""
    admission = _admission(APART, a=1, b=1)
    assert _state([_offer(admission, name) for name in ("chat", None, None)]) == [
        "admitted",
        "admitted",
        "waiting",
    ]


def test_a_group_without_usable_servers_lets_who_chooses_say_so() -> None:
    """What waits goes on waiting; what comes is refused by who chooses, in words of its own."""
    admission = _admission(APART, a=1, b=1)
    chats = [_offer(admission, "chat") for _ in range(2)]
    admission.resize(1, 1.0, parts=_limits(APART, {"a": 0, "b": 1}))
    admission.release(chats[0], 2.0)
    assert not admission.due(2.0)
    new = _offer(admission, "chat", 2.0)
    assert new.state is TicketState.ADMITTED
    admission.release(new, 2.0)
    admission.resize(2, 3.0, parts=_limits(APART, {"a": 1, "b": 1}))
    assert admission.due(3.0) == [chats[1]]


def test_the_queue_is_bounded_over_all_groups() -> None:
    """Who comes to another group makes the one with most waiting give way."""
    admission = Admission(AdmissionSettings(queue_length=3))
    admission.resize(2, 0.0, parts=_limits(APART, {"a": 1, "b": 1}))
    _offer(admission, "chat", tenant="t")
    _offer(admission, "embed", tenant="t")
    chats = [_offer(admission, "chat", tenant="t") for _ in range(3)]
    embedding = _offer(admission, "embed", tenant="u")
    assert admission.due(0.0) == [chats[2]]
    assert chats[2].refusal is not None
    assert chats[2].refusal.code == "preempted"
    assert embedding.state is TicketState.WAITING


def test_groups_that_are_told_apart_later_take_with_them_what_runs_and_waits() -> None:
    """As where servers list their models only some time after the start."""
    admission = Admission(limit=2)
    tickets = [_offer(admission, name) for name in ("chat", "chat", "chat", "embed", "chat")]
    assert _state(tickets) == ["admitted", "admitted", "waiting", "waiting", "waiting"]
    admission.resize(2, 1.0, parts=_limits(APART, {"a": 1, "b": 1}))
    assert admission.due(1.0) == [tickets[3]]
    admission.release(tickets[0], 2.0)
    assert not admission.due(2.0)  # two chats ran on one slot
    admission.release(tickets[1], 3.0)
    assert admission.due(3.0) == [tickets[2]]
    admission.resize(2, 4.0)
    assert not admission.due(4.0)
    for ticket in tickets:
        admission.release(ticket, 5.0)
    assert (admission.running, admission.waiting, admission.snapshot().models) == (0, 0, {})
    assert not tickets[0].account.flows


_steps = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "release", "withdraw", "resize", "group"]),
        st.sampled_from(["chat", "embed", "other", None]),
        st.sampled_from(list(Priority)),
        st.sampled_from([None, "t", "u"]),
        st.integers(0, 10),
    ),
    max_size=60,
)


@given(_steps)
def test_laws_hold_in_every_group(
    steps: list[tuple[str, str | None, Priority, str | None, int]],
) -> None:
    """No set of servers is filled beyond its slots, nothing waits that could begin, and counts are those of the tickets that have not ended."""
    admission = Admission(AdmissionSettings(queue_length=8))
    groups: ServerGroups = ONE_GROUP
    limits: GroupLimits | None = None
    tickets: list[Ticket] = []
    now = 0.0
    for what, model, priority, tenant, number in steps:
        now += 0.25
        if what == "offer":
            found = admission.offer(Arrival(priority, tenant, model=model), now)
            if not isinstance(found, AdmissionRefusal):
                tickets.append(found)
        elif what == "group" or (what == "resize" and groups is ONE_GROUP):
            groups = (ONE_GROUP, APART, INSIDE, OVER)[number % 4]
            limits = (
                None
                if groups is ONE_GROUP
                else _limits(groups, dict(zip("abc", (number, 2, 1), strict=True)))
            )
            admission.resize(4, now, parts=limits)
        elif what == "resize":
            limits = _limits(groups, dict(zip("abc", (number, 2, 1), strict=True)))
            admission.resize(4, now, parts=limits)
        elif tickets:
            ticket = tickets[number % len(tickets)]
            (admission.release if what == "release" else admission.withdraw)(ticket, now)
        admission.due(now)
        alive = [one for one in tickets if one.state in (TicketState.ADMITTED, TicketState.WAITING)]
        running = [one for one in alive if one.state is TicketState.ADMITTED]
        assert admission.running == len(running)
        assert admission.waiting == len(alive) - len(running)
        rooms = {id(slots): slots for one in alive for slots in (one.group.slots, *one.group.around)}
        for key, slots in rooms.items():
            here = [
                one
                for one in running
                if any(id(part) == key for part in (one.group.slots, *one.group.around))
            ]
            assert slots.running == [sum(one.tier == tier for one in here) for tier in range(3)]
        for one in alive:
            if one.state is TicketState.WAITING:
                assert not one.group.room(one.tier)
    for ticket in tickets:
        admission.release(ticket, now)
    assert (admission.running, admission.waiting) == (0, 0)
    assert all(not ticket.account.flows for ticket in tickets)
