"""`decide()` on the demo world, cold and from a Router's memory: `python tests/bench/decide_loop.py`, a turn each line of input.

Each turn prints CPU microseconds of a cold and of a remembered decision, over 1,000 clients in 50 countries.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from bench_view import current_view

from gtm.core.decision.decide import decide
from gtm.core.decision.router import Router
from gtm.core.decision.view import View
from gtm.core.model.requests import Location, Request
from gtm.core.policy.jurisdictions import countries_at

COLD, REMEMBERED = 2_000, 100_000


def requests_of(view: View) -> list[Request]:
    """Requests of 1,000 networks, half of them in the EEA."""
    generator = random.Random(1)
    eea = countries_at(view.snapshot.jurisdictions["EEA"], view.window.now)
    countries = generator.sample(sorted(eea), 25) + ["US", "BR", "JP", "SG", "IN"] * 5
    return [
        Request(
            "chat",
            Location(
                country, lat=generator.uniform(-60, 70), lon=generator.uniform(-180, 180), network=f"net-{n}"
            ),
        )
        for n, country in zip(range(1000), countries * 20, strict=True)
    ]


class Loop:
    """One turn after another over the same View."""

    def __init__(self) -> None:
        router = current_view().router
        assert router is not None
        self._view = router.view
        self._router = Router(router.view)
        self._requests = requests_of(router.view)
        for request in self._requests:
            self._router.decide(request, 0.5)

    def turn(self) -> tuple[float, float]:
        """CPU µs of a cold decision, and of a remembered one."""
        view, router, requests = self._view, self._router, self._requests
        return (
            _microseconds(lambda n: decide(view, requests[n % 1000], 0.5), COLD),
            _microseconds(lambda n: router.decide(requests[n % 1000], 0.5), REMEMBERED),
        )


def _microseconds(call: Callable[[int], object], count: int) -> float:
    begin = time.process_time()
    for number in range(count):
        call(number)
    return 1e6 * (time.process_time() - begin) / count


def main() -> None:
    """A turn for each line of input."""
    loop = Loop()
    for _ in sys.stdin:
        print(*loop.turn(), flush=True)


if __name__ == "__main__":
    main()
