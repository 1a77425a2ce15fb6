"""Which servers a request may wait for (`gtm.core.balance.groups`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.groups import MOST_GROUPS, ONE_GROUP, ServerGroups, groups_of
from gtm.core.balance.serving import sent_to


@dataclass(frozen=True)
class Server:
    backend: Backend
    condition: Condition


def _server(name: str, declared: str = "", listed: str | None = None, adapters: str = "") -> Server:
    return Server(
        Backend(name, models=frozenset(declared.split())),
        Condition(
            healthy=True,
            models=None if listed is None else frozenset(listed.split()),
            adapters=frozenset(adapters.split()),
        ),
    )


def _of(groups: ServerGroups, model: str | None) -> list[set[str]]:
    return [set(groups.servers[number]) for number in groups.groups(model)]


def test_servers_that_are_alike_are_one_group() -> None:
    """By the file, by their lists, and where nothing is known of any."""
    assert groups_of([]) is ONE_GROUP
    assert groups_of([_server("a"), _server("b")]) is ONE_GROUP
    assert groups_of([_server("a", "m n"), _server("b", "m n")]) is ONE_GROUP
    assert groups_of([_server("a", listed="m"), _server("b", listed="m")]) is ONE_GROUP
    # LoRA adapters are loaded by any: where they happen to be makes no group.
    fleet = [_server("a", "m", "m", "x y"), _server("b", "m", "m", "y"), _server("c", "m", "m")]
    assert groups_of(fleet) is ONE_GROUP


def test_unlike_servers_are_groups_of_their_own() -> None:
    """By the file and by their lists."""
    for chat, embeds in (
        (_server("a", "llama"), _server("b", "bge")),
        (_server("a", listed="llama"), _server("b", listed="bge")),
    ):
        groups = groups_of([chat, embeds])
        assert _of(groups, "llama") == [{"a"}]
        assert _of(groups, "bge") == [{"b"}]
        assert _of(groups, None) == [{"a"}, {"b"}]
        assert _of(groups, "unknown") == [{"a"}, {"b"}]
        assert groups.within == ((0,), (1,))
        assert len(set(groups.names)) == 2


def test_sets_that_overlap_count_together_too() -> None:
    """What is in two sets counts in the union of both; a set within another counts there."""
    groups = groups_of([_server("a", "m"), _server("b", "m n"), _server("c", "n")])
    assert _of(groups, "m") == [{"a", "b"}]
    assert _of(groups, "n") == [{"b", "c"}]
    (of_m,), (of_n,) = groups.groups("m"), groups.groups("n")
    every = groups.servers.index(frozenset("abc"))
    assert groups.within[of_m] == (of_m, every)
    assert groups.within[of_n] == (of_n, every)
    inside = groups_of([_server("a", "m n"), _server("b", "n")])
    assert _of(inside, "m") == [{"a"}]
    assert inside.within == ((0, 1), (1,))


def test_what_a_server_may_have_counts() -> None:
    """A server whose list nobody knows may have any model; one that was never reached says nothing yet."""
    groups = groups_of([_server("a"), _server("b", listed="bge")])
    assert _of(groups, "bge") == [{"a", "b"}]
    assert _of(groups, "unknown") == [{"a"}]
    new = Server(Backend("c"), Condition())
    assert groups_of([_server("a", listed="m"), _server("b", listed="m"), new]) is ONE_GROUP


def test_a_name_with_its_tag_has_the_same_group() -> None:
    """As Ollama reads names."""
    groups = groups_of([_server("a", listed="llama:latest"), _server("b", "bge")])
    assert _of(groups, "llama") == _of(groups, "llama:latest") == [{"a"}]
    assert _of(groups, "bge:latest") == [{"b"}]


def test_too_many_sets_count_by_what_they_share() -> None:
    """Those that overlap become one; where these are too many, all do."""
    ring = [_server(f"s{number:02d}", f"m{number} m{number + 1}") for number in range(2 * MOST_GROUPS)]
    apart = _server("t", "other")
    groups = groups_of([*ring, apart])
    assert _of(groups, "m3") == [{one.backend.name for one in ring}]
    assert _of(groups, "other") == [{"t"}]
    many = [_server(f"s{number}", f"m{number}") for number in range(MOST_GROUPS + 1)]
    assert groups_of(many) is ONE_GROUP


_names = st.sets(st.sampled_from("mnop"), max_size=3).map(" ".join)
_servers = st.lists(st.tuples(_names, st.none() | _names, _names), min_size=1, max_size=6).map(
    lambda rows: [_server(f"s{number}", *row) for number, row in enumerate(rows)]
)


@given(_servers)
def test_laws(servers: list[Server]) -> None:
    """Each name is in one group, which has all servers that are sent it; what contains a group counts it, and what overlaps has a union."""
    groups = groups_of(servers)
    if groups is ONE_GROUP:
        return
    assert len(set(groups.servers)) == len(groups.servers) <= 2 * MOST_GROUPS
    for name in "mnop":
        found = groups.groups(name)
        if name in groups.of:
            (number,) = found
            assert {one.backend.name for one in sent_to(servers, name)} <= groups.servers[number]
    for number, within in enumerate(groups.within):
        assert within[0] == number
        assert set(within) == {at for at, one in enumerate(groups.servers) if groups.servers[number] <= one}
    for one, other in pairwise(groups.servers):
        if one & other:
            assert any(one | other <= more for more in groups.servers)
