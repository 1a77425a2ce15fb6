"""Traces of inference requests made up by shape and seed: `python tests/bench/sim_traces.py SHAPE [--seed 1] > FILE`.

The form is that of the Azure LLM inference traces (`tests.bench.sim_world.read_trace`). Sizes are log-normal. Shapes:

  short    bursty, short requests (as code completion): 2,000 tokens in, 28 out, 1.3 s on average. Arrivals come in bursts: a
           Markov-modulated Poisson process, quiet for 20 s on average and at 8 times that rate for 4 s.
  long     smooth, long requests: 1,000 in, 300 out, 12 s. A Poisson process.
  diurnal  1,200 in, 120 out, 5 s; the rate swings by a factor of 3 over the hour, the gaps vary twice as much as a Poisson
           process's (gamma).
  flash    1,000 in, 100 out, 4 s; a Poisson process, and four times in the hour a crowd: 6 times the rate within 10 s, for a
           minute, and gone as fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.bench.sim_world import Floats, Trace

SECONDS = 3600.0
SPREAD = 0.8
"""Standard deviation of the logarithm of a request's tokens."""


def short(generator: np.random.Generator) -> Floats:
    """Arrivals in bursts; 2.2 requests/s on average."""
    now, edges, rates = 0.0, [0.0], []
    while now < SECONDS:
        for rate, mean in ((1.0, 20.0), (8.0, 4.0)):
            now += generator.exponential(mean)
            edges.append(now)
            rates.append(rate)
    return _by_steps(np.array(edges), np.array(rates), generator)


def long(generator: np.random.Generator) -> Floats:
    """Arrivals of a Poisson process; 2 requests/s."""
    return _by_steps(np.array([0.0, SECONDS]), np.array([2.0]), generator)


def diurnal(generator: np.random.Generator) -> Floats:
    """Arrivals whose rate is a sinusoid from 1 to 3 requests/s, with gamma gaps of squared variation 4."""
    grid = np.linspace(0, SECONDS, 3601)
    rate = 2 - np.cos(2 * np.pi * grid / SECONDS)
    work = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid))])
    at = np.cumsum(generator.gamma(0.25, 4.0, int(work[-1] * 2)))
    return np.asarray(np.interp(at[at < work[-1]], work, grid))


def flash(generator: np.random.Generator) -> Floats:
    """Arrivals of a Poisson process, 2 requests/s, and four crowds of 12 requests/s."""
    edges, rates = [0.0], []
    for begin in np.sort(generator.uniform(0.1, 0.9, 4)) * SECONDS:
        start = max(begin, edges[-1] + 1)
        edges += [start, start + 10, start + 60, start + 70]
        rates += [2.0, 7.0, 12.0, 7.0]
    return _by_steps(np.array([*edges, max(SECONDS, edges[-1] + 1)]), np.array([*rates, 2.0]), generator)


SHAPES: dict[str, tuple[Callable[[np.random.Generator], Floats], float, float]] = {
    "short": (short, 2000.0, 28.0),
    "long": (long, 1000.0, 300.0),
    "diurnal": (diurnal, 1200.0, 120.0),
    "flash": (flash, 1000.0, 100.0),
}
"""Name → arrivals, and the mean context and generated tokens."""


def make_trace(shape: str, seed: int) -> Trace:
    """An hour's requests of a shape."""
    arrivals, context, generated = SHAPES[shape]
    generator = np.random.default_rng([seed, sorted(SHAPES).index(shape)])
    at = arrivals(generator)
    at -= at[0]

    def tokens(mean: float) -> Floats:
        drawn = generator.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, len(at))
        return np.asarray(np.maximum(1.0, np.round(drawn)))

    return Trace(at, tokens(context), tokens(generated))


def half_of(trace: Trace, *, second: bool) -> Trace:
    """The first or the second half of a trace's requests."""
    middle = len(trace.arrival) // 2
    part = slice(middle, None) if second else slice(0, middle)
    arrival = trace.arrival[part]
    return Trace(arrival - arrival[0], trace.context[part], trace.generated[part])


def _by_steps(edges: Floats, rates: Floats, generator: np.random.Generator) -> Floats:
    """Arrivals of a Poisson process whose rate is constant between edges."""
    counts = generator.poisson(rates * np.diff(edges))
    parts = [
        generator.uniform(begin, end, count)
        for begin, end, count in zip(edges, edges[1:], counts, strict=False)
    ]
    return np.sort(np.concatenate(parts))


def main(given: Sequence[str] | None = None) -> None:
    """Print a trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    trace = make_trace(options.shape, options.seed)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    print("TIMESTAMP,ContextTokens,GeneratedTokens")
    for at, context, generated in zip(trace.arrival, trace.context, trace.generated, strict=True):
        when = (begin + timedelta(seconds=float(at))).strftime("%Y-%m-%d %H:%M:%S.%f")
        sys.stdout.write(f"{when}0,{context:.0f},{generated:.0f}\n")


if __name__ == "__main__":
    main()
