"""A and AAAA by one draw: what it would cost weights, by simulation (docs/decisions/0051-draws-of-two-families.md).

A service has two regions of weights 0.7 and 0.3. Four ways to draw are tried:

  each     every question draws for itself, as gtm does
  second   the draw follows from network, service and second
  tenth    likewise, from a tenth of a second
  golden   from network, service and the number of the second times the golden ratio: even over seconds for each network

Said are: pairs of A and AAAA that are torn, by the time between the two questions; and how far from 0.3 the second region's share
of all answers is (the root of the mean square over 200 worlds).

    python tests/bench/pair_draws.py
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from statistics import fmean

from gtm.core.model.affinity import fraction, key_hash

SHARE = 0.3
WORLDS = 200
_GOLDEN = (5**0.5 - 1) / 2
_SERVICE = key_hash("chat")
Draw = Callable[[int, float], float]
"""Of a network (its hash) and a moment in seconds."""


def _of(length: float) -> Draw:
    return lambda network, at: fraction(network, _SERVICE ^ (int(at / length) * 0x9E3779B97F4A7C15 % 2**64))


def _each(_network: int, _at: float) -> float:
    return random.random()


WAYS: dict[str, Draw] = {
    "each": _each,
    "second": _of(1.0),
    "tenth": _of(0.1),
    "golden": lambda network, at: (fraction(network, _SERVICE) + int(at) * _GOLDEN) % 1,
}


def torn(draw: Draw, gap: float) -> float:
    """The share of pairs with two regions, of questions that are `gap` seconds apart."""
    found = 0
    for number in range(20_000):
        at = random.uniform(0, 1e6)
        found += (draw(number, at) < SHARE) != (draw(number, at + gap) < SHARE)
    return found / 20_000


def few(networks: int, rate: float, seconds: float) -> Iterator[tuple[int, float]]:
    """Questions of so many networks, each at so many a second."""
    for network in range(networks):
        start = random.uniform(0, 1e6)
        client = key_hash(f"{network} {start}")
        for number in range(int(rate * seconds)):
            yield client, start + number / rate


def error(draw: Draw, networks: int, rate: float, seconds: float) -> float:
    """The root of the mean squared distance from the share, over worlds."""
    squares = []
    for _ in range(WORLDS):
        hits = [draw(client, at) < SHARE for client, at in few(networks, rate, seconds)]
        squares.append((fmean(hits) - SHARE) ** 2)
    return fmean(squares) ** 0.5


def main() -> None:
    """Print both tables, and what a draw costs."""
    random.seed(1)
    print("torn pairs, by the time between A and AAAA")
    for name, draw in WAYS.items():
        shown = (f"{gap * 1000:g} ms {torn(draw, gap):.1%}" for gap in (0.001, 0.01, 0.05, 0.3, 30.0))
        print(f"  {name:7}", "  ".join(shown))
    print(f"share of the second region: {SHARE:.0%} ±")
    cases = {
        "1,000 networks, once": (1000, 1, 1),
        "1 network, 100/s for 1 s": (1, 100, 1),
        "100/s for 10 s": (1, 100, 10),
        "20/s for 60 s": (1, 20, 60),
        "1 in 30 s, 100 times": (1, 1 / 30, 3000),
        "1 in 55 s, 100 times": (1, 1 / 55, 5500),
    }
    for said, case in cases.items():
        print(f"  {said:26}", "  ".join(f"{name} {error(draw, *case):.1%}" for name, draw in WAYS.items()))
    for name in ("each", "second"):
        draw, start = WAYS[name], time.perf_counter()
        for number in range(200_000):
            draw(number, 1.0)
        print(f"a draw by {name}: {(time.perf_counter() - start) * 5e3:.0f} ns")
    start = time.perf_counter()
    for _ in range(200_000):
        key_hash("192.0.2.0/24")
    print(f"the hash of a network: {(time.perf_counter() - start) * 5e3:.0f} ns")


if __name__ == "__main__":
    main()
