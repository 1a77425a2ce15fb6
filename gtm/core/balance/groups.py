"""Which servers a request may wait for: the groups of servers by which admission counts room.

Theory. A request may go to the servers that have its model (`serving.sent_to`). Where that is one set for all models, the region is one pool of slots. Where it is not
(a chat server beside one for embeddings), a request that waits for some servers must not hold the slots of others. So each set that requests may go to is a *group*
with slots and a queue of its own. A request counts in its own group and in each that contains it: what runs in a set of servers is then bounded by their slots, whichever models
it is for. Sets that overlap, none within another, have their union as a group, too: else what they share would count twice.

Laws:
  1. Requests of one name are in one group, and every server that is sent them is in it.
  2. Where all servers are alike there is one group. What no server has a name for (`groups` of None) makes none: it takes room where room is.
  3. Groups go by what servers have, never by how well they are: a check that fails moves nobody from one queue to another.
  4. No more than `MOST_GROUPS`, and their unions, which are fewer: beyond that sets which overlap are one, and if these are too many, too, all are.

Source: Hall 1935, "On representatives of subsets": requests find servers if no set of them has more than the servers that it may go to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from gtm.core.balance.serving import KnownServer, asked_for, named, sent_to

MOST_GROUPS = 32
"""Groups of one region that are told apart."""
_UNHEARD_OF = "\0unheard-of"
"""Stands for all names that no server has."""


@dataclass(frozen=True, slots=True)
class ServerGroups:
    """The groups of a region's servers.

    `servers`: the names of those of each group. `names`: what balancers that have the same servers call each group alike. `within`: for each, the groups that requests count in which wait in it: itself first, then those that
    contain it. `of`: the group of each name that servers have. `anywhere`: those that a request may be in whose name nobody has. `open_to_all`: likewise, of one that names none.
    """

    servers: tuple[frozenset[str], ...] = (frozenset(),)
    within: tuple[tuple[int, ...], ...] = ((0,),)
    of: Mapping[str, int] = field(default_factory=dict)
    anywhere: tuple[int, ...] = (0,)
    open_to_all: tuple[int, ...] = (0,)
    names: tuple[str, ...] = ("",)

    def groups(self, model: str | None) -> tuple[int, ...]:
        """The groups that a request may be in which names this model."""
        if model is None:
            return self.open_to_all
        found = self.of.get(model)
        if found is None:
            found = self.of.get(model.removesuffix(":latest"))
        return self.anywhere if found is None else (found,)


ONE_GROUP = ServerGroups()
"""All servers are alike: they are one group."""


def groups_of(servers: Sequence[KnownServer]) -> ServerGroups:
    """The groups of servers, by what is known of them."""
    if len({(one.backend.models, one.condition.models, one.condition.adapters) for one in servers}) < 2:
        return ONE_GROUP
    of_models, of_adapters = _sets_by_name(servers)
    sets = _bounded(set(of_models.values()))
    # Of a server that was never reached nothing is known, which is no news.
    unheard = frozenset(
        one.backend.name
        for one in sent_to(servers, _UNHEARD_OF)
        if one.condition.models is not None or one.condition.healthy
    )
    if unheard and not any(one <= unheard for one in sets):
        sets = _bounded({*sets, unheard})
    # Others may load adapters: they make no group where a model's has their servers.
    for those in of_adapters.values():
        if not any(those <= one for one in sets):
            sets = _bounded({*sets, those})
    if len(sets) < 2 or len(sets) > MOST_GROUPS:
        return ONE_GROUP
    kinds = _ordered(sets)
    every = _ordered({*sets, *_joined(sets)})
    within = tuple(
        (number, *(other for other, more in enumerate(every) if one < more))
        for number, one in enumerate(every)
    )
    of = {  # the smallest that has all of those
        name: next(number for number, one in enumerate(every) if those <= one)
        for name, those in (of_adapters | of_models).items()
    }
    places = {those: number for number, those in enumerate(every)}
    open_to_all = tuple(places[one] for one in kinds)
    anywhere = tuple(places[one] for one in kinds if one <= unheard) or open_to_all
    return ServerGroups(tuple(every), within, of, anywhere, open_to_all, tuple(map(_name, every)))


def _sets_by_name(
    servers: Sequence[KnownServer],
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The servers that are sent requests for each name: of models, and of adapters."""
    known: dict[str, list[tuple[int, bool]]] = {}
    for number, one in enumerate(servers):
        adapters = one.condition.adapters or ()
        for name in asked_for(one):
            known.setdefault(name, []).append((number, not named(name, adapters)))
    # Names that the same servers have in the same way are sent to the same ones: many names have few sets.
    found: dict[tuple[tuple[int, bool], ...], frozenset[str]] = {}
    models: dict[str, frozenset[str]] = {}
    adapters_: dict[str, frozenset[str]] = {}
    for name, where in known.items():
        key = tuple(where)
        if key not in found:
            found[key] = frozenset(one.backend.name for one in sent_to(servers, name))
        (models if any(is_model for _, is_model in where) else adapters_)[name] = found[key]
    return models, adapters_


def _bounded(sets: set[frozenset[str]]) -> set[frozenset[str]]:
    """These sets; where they are too many, those that overlap as one."""
    return sets if len(sets) <= MOST_GROUPS else set(_joined(sets))


def _joined(sets: Collection[frozenset[str]]) -> list[frozenset[str]]:
    """The unions of those that overlap, directly or through others."""
    joined: list[frozenset[str]] = []
    for one in sets:
        touching = [other for other in joined if one & other]
        joined = [other for other in joined if not one & other]
        joined.append(one.union(*touching))
    return joined


def _ordered(sets: Collection[frozenset[str]]) -> list[frozenset[str]]:
    """The smallest first."""
    return sorted(sets, key=lambda one: (len(one), sorted(one)))


def _name(servers: frozenset[str]) -> str:
    return blake2b("\n".join(sorted(servers)).encode(), digest_size=8).hexdigest()
