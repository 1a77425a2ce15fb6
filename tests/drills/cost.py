"""What bytes from outside cost to read: a search, in each reader's own grammar, for the text that costs most for its length.

A text is a beginning, a pattern that is repeated, and an end. `climb` changes the pattern where that takes more steps for each
byte. Of the worst that it finds, the lines of Python that are run and the memory that is held are counted at three lengths, each
four times the one before: both have to grow with the length, and no faster. Where C does the work (PyYAML's loader, msgspec, json)
lines say little; the exponent of processor time over the length is printed beside them, and asserts nothing.

    python -m tests.drills.cost 500      # prints the table of docs/security.md, after so many tries for each reader
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import log
from types import FrameType
from typing import Any

from gtm.adapters.exposition import read_samples
from gtm.adapters.orca import read_orca
from gtm.core.demand.traffic import TrafficBuilder
from gtm.core.model.requests import Location
from gtm.dashboard.form_bodies import parts
from gtm.documents import yamls
from gtm.documents.imports import vscf
from gtm.documents.traffic_csv import read_csv
from gtm.feed import wire as feed
from gtm.geoip.client import ClientFinder
from gtm.http.requests.lookup import parse_query
from gtm.nesting import loads, read
from gtm.settings import LOOPBACK
from tests.dns.world import answerer

LENGTHS = (1_000, 4_000, 16_000)
"""Each is four times the one before."""
GROWTH = 1.5
"""How much more a byte of the longest may cost than one of the shortest: beginnings, ends and hash tables that grow."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Something that reads what strangers send, and what it may cost.

    Args:
        name: what it is called in the table.
        read: takes a text; may refuse it by any error.
        begin: what each text begins with.
        pieces: what patterns are made of.
        end: what each text ends with.
        steps: lines of Python for a byte, at most.
        peak: bytes held at once for a byte, at most.
        worst: patterns that were found, which are tried first.
    """

    name: str
    read: Callable[[bytes], object]
    pieces: Sequence[bytes]
    steps: float
    peak: float
    begin: bytes = b""
    end: bytes = b""
    worst: Sequence[bytes] = ()

    def text(self, pattern: bytes, length: int) -> bytes:
        """A text of a pattern, about so long; `%d` in the pattern is another number each time."""
        count = max(1, (length - len(self.begin) - len(self.end)) // max(1, len(pattern)))
        made = b"".join(pattern.replace(b"%d", b"%d" % number) for number in range(count))
        return self.begin + made[: max(0, length - len(self.begin) - len(self.end))] + self.end

    def tried(self, text: bytes) -> None:
        """Read a text to its end, or to what is wrong with it."""
        with suppress(Exception):
            self.read(text)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the worst text of a reader costs.

    `steps` and `peak` are of each byte more, from one of `LENGTHS` to the next; `exponent` is of processor time over length.
    """

    pattern: bytes
    steps: tuple[float, ...]
    peak: tuple[float, ...]
    exponent: float


_ANSWERER = answerer()
_FINDER = ClientFinder(LOOPBACK)
_QUESTION = b"\2v4\4demo\4test\0\0\1\0\1"
_QUERY = bytes.fromhex("123401200001000000000001") + _QUESTION + b"\0\0\x29\x10\0\0\0\0\0"
"""As far as the length of its options (RFC 6891 §6.1.2)."""
_JSON = [
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b'"a%d":',
    b"1,",
    b"1e9,",
    b'"\\u00e9",',
    b"null,",
    b"\\",
    b'"a":',
    b"[1],",
    b'{"a":1},',
]
_YAML = [
    b"- ", b"a%d: 1\n", b"- &a [1]\n", b"- *a\n", b"- {<<: *a}\n", b"[", b"]", b"{", b"}", b'"', b"'", b"\n", b"? ", b": ", b"  ", b"#", b"x",
    b"--- 1\n", b"|\n", b"!!str ", b"- [1, 2]\n", b"- {a%d: x}\n", b"\\x41", b"%d",
]  # fmt: skip


def _records(text: bytes) -> bytes:
    """A query with as many records as fit, if each has the name of the root and no data."""
    return bytes.fromhex("12340120000100000000") + (len(text) // 11).to_bytes(2) + _QUESTION + text


def _recorded(text: bytes) -> object:
    lines = text.decode("latin-1").splitlines(keepends=True)
    return read_csv("a.csv", lines, TrafficBuilder(60.0), lambda _: Location(), {})


READERS: tuple[Reader, ...] = (
    Reader(
        "DNS messages, their options",
        lambda text: _ANSWERER.answer(_QUERY + len(text).to_bytes(2) + text, "127.0.0.1", tcp=True, draw=0.5),
        [
            b"\0\x08\0\x07\0\1\x18\0\x0a\1\2",
            b"\0\x0a\0\x08abcdefgh",
            b"\0\x0b\0\0",
            b"\0\x0c\0\0",
            b"\xff\xff\0\0",
            b"\0\x03\0\0",
            b"\0",
        ],
        steps=8.0,
        peak=12.0,
        worst=[b"\xff\xff\0\0"],
    ),
    Reader(
        "DNS messages, their records",
        lambda text: _ANSWERER.answer(_records(text), "127.0.0.1", tcp=True, draw=0.5),
        [b"\0\0\1\0\1\0\0\0\0\0\0", b"\0", b"\1a", b"\x3f" + b"a" * 63, b"\xc0\x0c", b"\0\1\0\1", b"\xff"],
        steps=3.0,
        peak=12.0,
        worst=[b"\0\0\1\0\1\0\0\0\0\0\0"],
    ),
    Reader(
        "JSON of requests",
        read,
        _JSON,
        steps=2.0,
        peak=120.0,
        begin=b"[",
        end=b"1]",
        worst=[b"[],", b'{"a":1},'],
    ),
    Reader(
        "JSON of other kinds",
        loads,
        _JSON,
        steps=2.0,
        peak=120.0,
        begin=b"[",
        end=b"1]",
        worst=[b"[],", b'{"a":1},'],
    ),
    Reader(
        "YAML of policies",
        yamls.load,
        _YAML,
        steps=60.0,
        peak=600.0,
        begin=b"a: &a {k: 1}\nb:\n",
        worst=[b"- {<<: *a}\n", b"- *a\n", b"\n- - - - - "],
    ),
    Reader(
        "feed messages",
        feed.decode,
        [*_JSON, b'"body":', b'"regions":'],
        steps=2.0,
        peak=120.0,
        worst=[b'\\"{', b"[],"],
        begin=b'{"type":"state","body":{"state":{"health":[',
        end=b"1]}}}",
    ),
    Reader(
        "metrics pages",
        lambda text: read_samples(text.decode("latin-1")),
        [
            b"a",
            b"a 1\n",
            b"a%d 1\n",
            b'a{b="c"} 1\n',
            b"{",
            b"}",
            b'"',
            b"\\",
            b",",
            b"#",
            b" ",
            b"\n",
            b'b="c",',
            b"# HELP a b\n",
            b"1e9",
        ],
        steps=40.0,
        peak=200.0,
        worst=[b"a 1\n"],
    ),
    Reader(
        "load reports of headers (ORCA)",
        lambda text: read_orca(text.decode("latin-1")),
        [b"a=1,", b"named_metrics.a%d=1,", b"AAAA", b"=", b",", b" "],
        steps=12.0,
        peak=150.0,
        begin=b"TEXT ",
    ),
    Reader(
        "X-Forwarded-For",
        lambda text: _FINDER.find("127.0.0.1", text, None),
        [b"127.0.0.1,", b"1.2.3.4,", b",", b" ", b"[::1]:1,", b"::1,", b'"', b"unknown,"],
        steps=40.0,
        peak=150.0,
        worst=[b',"', b'::1,"'],
    ),
    Reader(
        "Forwarded",
        lambda text: _FINDER.find("127.0.0.1", None, text),
        [b"for=127.0.0.1,", b'for="[::1]:1",', b";", b"by=_a;", b",", b'"', b"\\", b"for=", b" "],
        steps=20.0,
        peak=150.0,
    ),
    Reader(
        "queries of look-ups",
        parse_query,
        [b"service=chat&", b"x%d=b&", b"&", b"%41", b"=", b"+", b"client=192.0.2.1&", b"%"],
        steps=12.0,
        peak=80.0,
    ),
    Reader(
        "recorded traffic (CSV)",
        _recorded,
        [b"chat,DE,1\n", b"chat,FR,%d\n", b"s%d,DE,1\n", b",", b'"', b"\n", b"1", b"x"],
        steps=60.0,
        peak=300.0,
        begin=b"service,country,count\n",
    ),
    Reader(
        "forms in parts",
        lambda text: list(parts(text, b"x")),
        [
            b"--x\r\n",
            b"\r\n",
            b'Content-Disposition: form-data; name="a"\r\n\r\n',
            b"a",
            b";",
            b'"',
            b"--x--",
        ],
        steps=8.0,
        peak=20.0,
    ),
    Reader(
        "gdnsd's configuration",
        lambda text: vscf.load(text.decode("latin-1")),
        [b"{", b"}", b"a%d => 1\n", b"a = [1, 2]\n", b'"', b"\\", b"#", b"$", b"\n", b" ", b"[", b"]", b"a"],
        steps=60.0,
        peak=200.0,
        worst=[b"a"],
    ),
)
"""Those of control, DNS, documents and edges."""


def steps(reader: Reader, text: bytes) -> int:
    """How many lines of Python it takes to read a text."""
    count = 0

    def local(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    before = sys.gettrace()
    sys.settrace(lambda *_: local)
    try:
        reader.tried(text)
    finally:
        sys.settrace(before)
    return count


def peak(reader: Reader, text: bytes) -> int:
    """How many bytes are held at most while a text is read."""
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        reader.tried(text)
        return tracemalloc.get_traced_memory()[1] - base
    finally:
        tracemalloc.stop()


def exponent(reader: Reader, pattern: bytes) -> float:
    """The power of the length by which processor time grows; 1 is as it should be."""
    taken = []
    for length in (LENGTHS[0] * 4, LENGTHS[-1] * 4):
        text = reader.text(pattern, length)
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            reader.tried(text)
            best = min(best, time.process_time() - began)
        taken.append(max(best, 1e-7))
    return log(taken[1] / taken[0]) / log(LENGTHS[-1] / LENGTHS[0])


def climb(reader: Reader, tries: int, rng: random.Random) -> bytes:
    """The pattern that takes most steps for a byte, of those that were found and of so many more."""

    def score(pattern: bytes) -> float:
        text = reader.text(pattern, LENGTHS[1])
        return steps(reader, text) / len(text) + peak(reader, text) / len(text) / reader.peak * reader.steps

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
    return best


def cost(reader: Reader, tries: int, seed: int) -> Cost:
    """What the worst text costs that so many tries find."""
    reader.tried(reader.text(reader.pieces[0], LENGTHS[0]))  # what it loads when it is first needed
    pattern = climb(reader, tries, random.Random(f"{seed} {reader.name}"))
    texts = [reader.text(pattern, length) for length in LENGTHS]

    def slopes(counts: list[int]) -> tuple[float, ...]:
        lengths = [len(text) for text in texts]
        return tuple(
            (more - less) / max(1, longer - shorter)
            for (less, more), (shorter, longer) in zip(pairwise(counts), pairwise(lengths), strict=True)
        )

    return Cost(
        pattern,
        slopes([steps(reader, text) for text in texts]),
        slopes([peak(reader, text) for text in texts]),
        exponent(reader, pattern),
    )


def main(tries: int, seed: int = 1) -> None:
    """Print the table of docs/security.md."""
    print(
        "| reader | lines of Python a byte | bytes held a byte | exponent of processor time | worst pattern |"
    )
    print("|---|---|---|---|---|")
    for reader in READERS:
        found = cost(reader, tries, seed)
        print(
            f"| {reader.name} | {max(found.steps):.1f} (most {reader.steps:g}) | {max(found.peak):.0f} (most {reader.peak:g}) | "
            f"{found.exponent:.2f} | `{found.pattern!r}` |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
