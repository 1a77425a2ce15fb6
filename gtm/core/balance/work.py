"""What a request will cost, in seconds of a server's time, before it ends: learned from those that have ended.

Theory. Requests fall into classes: model, input (tokens, or bytes), max_tokens, each by powers of two. A class keeps a
histogram of the seconds that its requests were served, in steps of √2; old ones fade. From it come

    expected = mean of S                        before it begins
    left(a)  = E[S − a | S > a]                 when it has been served for a seconds and is not done

so that where 95 of 100 requests take 0.2 s and 5 take 12 s, one that is served for a second is known to be a long one: 11 s more,
where 0.8 were expected at first. A class that has seen few requests leans on its model, the model on all requests together:
mean = (n × own + few × wider) / (n + few).

Laws:
  1. What is expected is finite, and not below 0, whatever was learned.
  2. Memory is bounded, whatever models clients name: the class that was used least recently is forgotten.
  3. What is learned is of requests that ended well. What was cancelled says only that it took no less: it is left out.

Example.

>>> costs = Costs()
>>> for number in range(2000):
...     costs.learn(AskedWork("llama", 500, 256), 12.0 if number % 20 == 0 else 0.2)
>>> round(costs.expected(AskedWork("llama", 500, 256)), 1), round(costs.left(AskedWork("llama", 500, 256), 1.0), 1)
(0.8, 11.0)

Sources: Harchol-Balter, "Performance Modeling and Design of Computer Systems" (2013), ch. 20 (heavy tails: the longer it has run, the
longer it will).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from math import inf, isfinite
from typing import NamedTuple, TypeVar

FIRST_GUESS_S = 1.0
"""What a request is expected to take when nothing was ever learned."""
_BUCKETS = 48
_FADES = 64
"""Requests after which the older ones of a class fade a little."""
_NOTHING = 1e-6
"""Of so few requests, after they have faded, nothing is known."""
_LEAST_S = 0.001
_MOST_S = 7200.0
_FEW = 8.0
_REMEMBERED = 512.0
"""Requests after which the older half of what a class knows has faded."""
_BOUNDS = [_LEAST_S * 2 ** (step / 2) for step in range(_BUCKETS - 1)]
"""Seconds up to which the buckets go, but the last."""


class AskedWork(NamedTuple):
    """What is known of a request before it is served: its model, its input in tokens, its max_tokens (None: not said)."""

    model: str = ""
    tokens: int = 0
    most: int | None = None


class Costs:
    """What requests of each class cost. Seconds are those of a server of weight 1.

    Args:
        classes: how many classes are remembered.
    """

    def __init__(self, classes: int = 4096) -> None:
        self._most = classes
        self._all = Durations()
        self._classes: OrderedDict[tuple[str, int, int], Durations] = OrderedDict()
        self._last: tuple[AskedWork | None, tuple[Durations, ...]] = (
            None,
            (),
        )  # what was learned of last: used last

    def __len__(self) -> int:
        """How many classes and models are remembered."""
        return len(self._classes)

    def expected(self, asked: AskedWork) -> float:
        """Seconds that a request is expected to be served."""
        # Each request asks this: the sums are read where they are.
        whole, classes = self._all, self._classes
        estimate = whole.total / whole.count if whole.count >= _NOTHING else FIRST_GUESS_S
        of_model, of_class = _keys(asked)
        known = classes.get(of_model)
        if known is not None:
            estimate = (known.total + _FEW * estimate) / (known.count + _FEW)
        known = classes.get(of_class)
        if known is not None:
            estimate = (known.total + _FEW * estimate) / (known.count + _FEW)
        return estimate

    @property
    def mean(self) -> float:
        """Seconds that requests are served, in the mean of all."""
        seen, mean = self._all.beyond(0.0)
        return mean if seen else FIRST_GUESS_S

    def left(self, asked: AskedWork, age: float) -> float:
        """Seconds that a request is expected to be served on, after `age` seconds."""
        if age <= 0.0:
            return self.expected(asked)
        seen, mean = self._all.beyond(age)
        estimate = mean if seen else FIRST_GUESS_S
        for key in _keys(asked):
            durations = self._classes.get(key)
            if durations is not None:
                seen, mean = durations.beyond(age)
                estimate = (seen * mean + _FEW * estimate) / (seen + _FEW)
        return estimate

    def learn(self, asked: AskedWork, seconds: float) -> None:
        """A request ended well after being served for so long. What is no duration is left out."""
        if not 0.0 <= seconds <= _MOST_S:
            if not isfinite(seconds) or seconds < 0:
                return
            seconds = _MOST_S
        bucket = _bucket(seconds)
        last = self._last
        if asked != last[0]:
            last = self._last = asked, (self._all, *self._durations(asked))
        for known in last[1]:
            known.counts[bucket] += 1.0
            known.sums[bucket] += seconds
            known.total += seconds
            known.count = count = known.count + 1.0
            if count >= known.full:
                known.fade()

    def _durations(self, asked: AskedWork) -> tuple[Durations, ...]:
        """Those of a request's model and class, which have been used now."""
        return tuple(durations_of(self._classes, key, self._most, Durations) for key in _keys(asked))


def class_of(asked: tuple[str, int, int | None]) -> tuple[str, int, int]:
    """The class of a request: its model, and by powers of two its input and max_tokens."""
    model, tokens, most = asked
    bits = -1 if most is None else most.bit_length() if most > 0 else 0
    return model, tokens.bit_length() if tokens > 0 else 0, bits


def _keys(asked: AskedWork) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
    """The model, and the request's class in it."""
    return (asked.model, -1, -1), class_of(asked)


class Durations:
    """A histogram of seconds that fades: its steps are √2, from 1 ms to two hours."""

    __slots__ = ("count", "counts", "full", "sums", "total")

    def __init__(self) -> None:
        self.counts = [0.0] * _BUCKETS
        self.sums = [0.0] * _BUCKETS
        """By bucket, how many requests they are, and their seconds."""
        self.count = self.total = 0.0
        """How many requests they are, and all their seconds."""
        self.full = _FADES - 0.5
        """At so many they fade; half a one is left for what rounding does."""

    def learn(self, seconds: float) -> None:
        """One more; what is no duration is left out. As in `Costs.learn`, where it is written out for the sake of time."""
        if not 0.0 <= seconds < inf:
            return
        seconds = min(seconds, _MOST_S)
        bucket = _bucket(seconds)
        self.counts[bucket] += 1.0
        self.sums[bucket] += seconds
        self.total += seconds
        self.count += 1.0
        if self.count >= self.full:
            self.fade()

    def quantile(self, part: float) -> float:
        """Seconds within which at least this part of them, in (0, 1), were done: where the step ends that the exact quantile is in. 0: there are none."""
        allowed = self.count * (1.0 - part) + _NOTHING
        above = 0.0
        for bucket in range(len(_BOUNDS) - 1, -1, -1):
            above += self.counts[bucket]
            if above > allowed:
                return min(_BOUNDS[bucket], _MOST_S)
        return 0.0

    def fade(self) -> None:
        """Let what was learned count for less."""
        kept = 0.5 ** (_FADES / _REMEMBERED)
        self.counts = [count * kept for count in self.counts]
        self.sums = [total * kept for total in self.sums]
        self.count, self.total = sum(self.counts), sum(self.sums)
        self.full = self.count + _FADES - 0.5

    def beyond(self, age: float) -> tuple[float, float]:
        """How many requests took longer than `age`, and how much longer on average; (0, 0): none."""
        if age <= 0.0:
            count, total = self.count, self.total
        else:
            above = _bucket(age) + 1
            count, total = sum(self.counts[above:]), sum(self.sums[above:])
        if count < _NOTHING:
            return 0.0, 0.0
        return count, max(0.0, total / count - age)


_Key = TypeVar("_Key")
_Known = TypeVar("_Known", bound=Durations)


def durations_of(
    classes: OrderedDict[_Key, _Known], key: _Key, most: int, made: Callable[[], _Known]
) -> _Known:
    """What is known of a class, which is used now. Of so many classes at the most something is known: the one that was used least recently is forgotten."""
    durations = classes.get(key)
    if durations is None:
        durations = classes[key] = made()
    classes.move_to_end(key)
    while len(classes) > most:
        classes.popitem(last=False)
    return durations


def _bucket(seconds: float) -> int:
    return bisect_left(_BOUNDS, seconds)
