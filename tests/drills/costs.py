"""What it costs to read a text: counted, and searched for the text that costs most for its length.

A text is a beginning, a pattern that is repeated, and an end. `climb` changes the pattern where that takes more steps for each
byte. Of the worst that it finds, the lines of Python that are run and the memory that is held are counted at three lengths, each
four times the one before: both have to grow with the length, and no faster. Where C does the work (PyYAML's loader, llhttp, msgspec,
json) lines say little; there the exponent of processor time over the length tells.

A search among texts that are refused at their first byte proves nothing. So each reader's first pattern makes texts that it reads to
their end, and it is told what part of all that were tried was read so.
"""

from __future__ import annotations

import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from types import FrameType
from typing import Any

LENGTHS = (1_000, 4_000, 16_000)
"""Each is four times the one before."""
GROWTH = 1.5
"""How much more a byte of the longest may cost than one of the shortest: beginnings, ends and hash tables that grow."""
SQUARE = 1.6
"""An exponent of processor time that is nearer to the square of the length than to the length."""
_TESTS = Path(__file__).parent.parent
_WORLDS = (
    *(str(_TESTS / "drills" / name) for name in ("costs.py", "cost_")),
    *(str(_TESTS / room) for room in ("balancer", "dns", "http", "worlds")),
)
"""What stands around a reader and is none of it."""
_LEAST_TIME = 0.005
"""Seconds below which a text is read more than once, to be timed."""


_TURNS = 12
"""How often a text is timed at most, before it is said to take the square of its length."""


class RefusedError(Exception):
    """A text was not read to its end."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Something that reads what strangers send, and what it may cost.

    Args:
        name: what it is called in the table.
        read: takes a text; any error refuses it.
        pieces: what patterns are made of; repeated, the first is read to its end.
        steps: lines of Python for a byte, at most.
        peak: bytes held at once for a byte, at most.
        begin: what each text begins with.
        end: what each text ends with.
        worst: patterns that were found, which are tried first.
        most: bytes of a text; longer ones are refused for their length alone.
        wrap: makes of a text what is sent (signed, framed, counted); what that costs is the sender's.
    """

    name: str
    read: Callable[[Any], object]
    pieces: Sequence[bytes]
    steps: float
    peak: float
    begin: bytes = b""
    end: bytes = b""
    worst: Sequence[bytes] = ()
    most: int = LENGTHS[-1]
    wrap: Callable[[bytes], Any] = bytes

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those that are counted at."""
        return tuple(min(self.most, LENGTHS[-1]) * length // LENGTHS[-1] for length in LENGTHS)

    def text(self, pattern: bytes, length: int) -> bytes:
        """A text of a pattern that is there whole and once at least, about so long; `%d` in it is another number each time."""
        made: list[bytes] = []
        left = length - len(self.begin) - len(self.end)
        varies = b"%d" in pattern
        if not varies:
            made = [pattern] * max(1, left // max(1, len(pattern)))
        while varies:
            one = pattern.replace(b"%d", b"%d" % len(made))
            left -= len(one)
            if left < 0 and made:
                break
            made.append(one)
        return self.begin + b"".join(made) + self.end

    def given(self, pattern: bytes, length: int) -> Any:
        """What is sent of such a text."""
        return self.wrap(self.text(pattern, length))

    def reads(self, given: Any) -> bool:
        """Read something, and say whether it was read to its end."""
        try:
            self.read(given)
        except Exception:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Cost:
    """What the worst text of a reader costs.

    `steps` and `peak` are of each byte more, from one length to the next; `exponent` is of processor time over length, the largest of the patterns timed; `read` is the
    part of the texts tried that were read to their end.
    """

    pattern: bytes
    steps: tuple[float, ...]
    peak: tuple[float, ...]
    exponent: float
    read: float


def steps(reader: Reader, given: Any) -> int:
    """How many lines of Python, but for the tests' own, it takes to read something."""
    count = 0

    def local(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def called(frame: FrameType, _event: str, _arg: Any) -> Any:
        return None if frame.f_code.co_filename.startswith(_WORLDS) else local

    before = sys.gettrace()
    sys.settrace(called)
    try:
        reader.reads(given)
    finally:
        sys.settrace(before)
    return count


def _steps_again(reader: Reader, text: bytes) -> int:
    """The same of a text that was read before: what is remembered of it is no part of its cost for each byte."""
    reader.reads(reader.wrap(text))
    return steps(reader, reader.wrap(text))


def peak(reader: Reader, given: Any) -> int:
    """How many bytes are held at most while something is read."""
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        reader.reads(given)
        return tracemalloc.get_traced_memory()[1] - base
    finally:
        tracemalloc.stop()


def _seconds(reader: Reader, given: Any) -> float:
    """Processor time of reading something once, without the garbage collector's, which goes by all that the process holds."""
    times = 1
    gc.disable()
    try:
        while True:
            began = time.process_time()
            for _ in range(times):
                reader.reads(given)
            took = time.process_time() - began
            if took >= _LEAST_TIME:
                return took / times
            times *= 4
    finally:
        gc.enable()


def exponent(reader: Reader, pattern: bytes) -> float:
    """The power of the length by which processor time grows; 1 is as it should be."""
    texts = [reader.text(pattern, length) for length in reader.lengths[1:]]
    if len(texts[1]) <= len(texts[0]):
        return 1.0
    taken: tuple[list[float], list[float]] = ([], [])
    found = SQUARE
    while (
        found >= SQUARE and len(taken[0]) < _TURNS
    ):  # what else the machine does adds time, and takes none away
        for seconds, text in zip(taken, texts, strict=True):
            seconds.append(_seconds(reader, reader.wrap(text)))
        found = log(min(taken[1]) / min(taken[0])) / log(len(texts[1]) / len(texts[0]))
    return found


def climb(reader: Reader, tries: int, rng: random.Random) -> tuple[bytes, float]:
    """The pattern that takes most steps for a byte, of those that were found and of so many more; and the part of the texts that were read to their end."""
    read = tried_of_all = 0

    def score(pattern: bytes) -> float:
        nonlocal read, tried_of_all
        length = len(reader.text(pattern, reader.lengths[1]))
        given = reader.given(pattern, reader.lengths[1])
        tried_of_all += 1
        read += reader.reads(given)
        return steps(reader, given) / length + peak(reader, given) / length / reader.peak * reader.steps

    best = max((*reader.worst, reader.pieces[0]), key=score)
    best_score = score(best)
    taken: list[bytes] = [best]
    for _ in range(tries):
        tried = list(taken)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(tried) + 1)
            if rng.random() < 0.6 or not tried:
                tried.insert(at, rng.choice(reader.pieces))
            else:
                del tried[min(at, len(tried) - 1)]
        pattern = b"".join(tried[:12])
        if pattern and (found := score(pattern)) > best_score:
            best, best_score, taken = pattern, found, tried[:12]
    return best, read / tried_of_all


def cost(reader: Reader, tries: int, seed: int, *, times: bool = False) -> Cost:
    """What the worst text costs that so many tries find.

    `times`: take the largest exponent of each piece's alone, too: what takes the square of its length in C takes no line more.
    """
    for piece in reader.pieces:
        reader.reads(reader.given(piece, reader.lengths[1]))  # what it loads when it is first needed
    pattern, read = climb(reader, tries, random.Random(f"{seed} {reader.name}"))
    texts = [reader.text(pattern, length) for length in reader.lengths]

    def slopes(counts: list[int]) -> tuple[float, ...]:
        lengths = [len(text) for text in texts]
        return tuple(
            (more - less) / (longer - shorter)
            if longer > 1.5 * shorter
            else 0.0  # a pattern is there once at least
            for (less, more), (shorter, longer) in zip(pairwise(counts), pairwise(lengths), strict=True)
        )

    return Cost(
        pattern,
        slopes([_steps_again(reader, text) for text in texts]),
        slopes([min(peak(reader, reader.wrap(text)) for _ in range(2)) for text in texts]),
        max(exponent(reader, one) for one in ((pattern, *reader.pieces) if times else (pattern,))),
        read,
    )
