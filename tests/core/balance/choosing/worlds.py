"""Random servers, conditions and loads, as hypothesis strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.chooser import BackendChoice, BackendPool, choice, pool_of
from gtm.core.balance.choosing.values import (
    Candidate,
    ChoosingSettings,
    WantedBackend,
    Why,
)
from gtm.core.balance.flights import Flights

MODELS = ("llama", "qwen")
ADAPTERS = ("law", "medicine")
VERSIONS = ("", "blue", "green")

loaded = st.none() | st.frozensets(st.sampled_from(MODELS))
conditions = st.builds(
    Condition,
    healthy=st.sampled_from((True, True, True, False)),
    held=st.sampled_from((False, False, False, True)),
    ejected=st.sampled_from((False, False, False, True)),
    draining=st.sampled_from((False, False, False, True)),
    models=loaded,
    adapters=st.none() | st.frozensets(st.sampled_from(ADAPTERS)),
    memory=st.none() | st.sampled_from((0.1, 0.95, 0.96)),
    warmth=st.sampled_from((1.0, 0.25)),
    refuses=st.sampled_from((False, False, False, True)),
)
shares = st.sampled_from(
    (
        (),
        (("green", 0.1),),
        (("blue", 0.7), ("green", 0.3)),
        (("blue", 0.0), ("green", 1.0)),
        (("blue", 0.2), ("green", 0.0)),
    )
)


@st.composite
def servers(draw: st.DrawFn, least: int = 0, most: int = 8) -> tuple[Backend, ...]:
    """Servers of one region."""
    count = draw(st.integers(least, most))
    return tuple(
        Backend(
            f"http://b{number}",
            draw(st.sampled_from((1.0, 0.3, 2.5))),
            draw(st.none() | st.integers(1, 4)),
            draw(st.frozensets(st.sampled_from(MODELS))),
            draw(st.sampled_from(VERSIONS)),
        )
        for number in range(count)
    )


@st.composite
def known(draw: st.DrawFn, backends: Sequence[Backend]) -> dict[str, Condition]:
    """What is known of them; of some nothing."""
    return {backend.name: draw(conditions) for backend in backends if draw(st.integers(0, 9))}


def loaded_pool(
    weights: Sequence[float],
    requests: Sequence[int] = (),
    settings: ChoosingSettings | None = None,
    slots: Sequence[int | None] = (),
    warmth: Mapping[int, float] | None = None,
) -> BackendPool:
    """A pool of healthy servers by weight, with so many requests of a second each in flight."""
    backends = [
        Backend(f"http://b{number}", weight, slots[number] if slots else None)
        for number, weight in enumerate(weights)
    ]
    flights = Flights(backends)
    for backend, count in zip(backends, requests, strict=False):
        for _ in range(count):
            flights.of(backend.name).begin(1.0)
    healthy = {
        backend.name: Condition(healthy=True, warmth=(warmth or {}).get(number, 1.0))
        for number, backend in enumerate(backends)
    }
    return pool_of(backends, healthy, flights, settings)


def choose(pool: BackendPool, wanted: WantedBackend, draw: float) -> Candidate | Why:
    """The server of a `choice`."""
    found = choice(pool, wanted, draw)
    return found.candidate if isinstance(found, BackendChoice) else found
