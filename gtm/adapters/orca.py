"""Load that a server says in the header of a response: ORCA's `endpoint-load-metrics`.

Its forms are read, as Envoy does (`source/common/orca/orca_parser.cc`) and vLLM and Triton write them for requests that ask
with `endpoint-load-metrics-format`:

    TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3
    JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3}}

    BIN  a protobuf message (`xds.data.orca.v3.OrcaLoadReport`) in base64; in `endpoint-load-metrics-bin` without `BIN`

Laws:
  1. A header is bounded before it is read: `MAX_HEADER` bytes, `MAX_ENTRIES` numbers.
  2. A number that is out of its range is left out, as is what gtm does not know. What is no such header at all is an error.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator

import msgspec

from gtm.adapters.exposition import MetricsError
from gtm.core.capacity.load import NAMED_METRICS, SIGNALS
from gtm.nesting import shallow

HEADER = "endpoint-load-metrics"
FORMAT_HEADER = "endpoint-load-metrics-format"
"""A request's header that asks for it: `TEXT` or `JSON`."""
MAX_HEADER = 4096
MAX_ENTRIES = 100
_SHOWN = 60
_WHOLE = 1 << 63
"""Whole numbers from here on are out of every range."""

_ENTRY = re.compile(r"[ \t]*([A-Za-z0-9_.:/-]{1,200})[ \t]*[=:][ \t]*([0-9.eE+-]{1,40})[ \t]*", re.ASCII)
_OWN = {"rps_fractional": "requests_per_second", "rpsFractional": "requests_per_second"}


def read_orca(header: str) -> dict[str, float]:
    """The signals in a header (`gtm.core.capacity.load.SIGNALS`).

    Raises:
        MetricsError: it is not in this format, or too long.
    """
    if len(header) > MAX_HEADER:
        raise MetricsError(f"`{HEADER}` is longer than the {MAX_HEADER} characters that are read")
    form, _, rest = header.strip().partition(" ")
    if form == "TEXT":
        return _signals(_text(rest))
    if form == "JSON":
        return _signals(_json(rest))
    if form == "BIN":
        return _signals(_binary(rest))
    raise MetricsError(f"`{HEADER}: {header[:_SHOWN]}` is none of TEXT, JSON and BIN")


def _text(rest: str) -> Iterator[tuple[str, float]]:
    entries = rest.split(",")
    if len(entries) > MAX_ENTRIES:
        raise MetricsError(f"`{HEADER}` has more than the {MAX_ENTRIES} numbers that are read")
    for entry in entries:
        found = _ENTRY.fullmatch(entry)
        number = None if found is None else _number(found[2])
        if found is None or number is None:
            raise MetricsError(f"`{HEADER}` has `{entry[:_SHOWN]}` where `name=number` belongs")
        yield found[1], number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _json(rest: str) -> Iterator[tuple[str, float]]:
    try:
        found = msgspec.json.decode(
            shallow(rest), type=dict[str, float | int | str | dict[str, float] | None]
        )
    except ValueError as error:
        raise MetricsError(f"`{HEADER}` has JSON that is no load report: {str(error)[:_SHOWN]}") from error
    count = 0
    for name, value in found.items():
        entries = (
            [(f"{name}.{key}", one) for key, one in value.items()]
            if isinstance(value, dict)
            else [(name, value)]
        )
        count += len(entries)
        if count > MAX_ENTRIES:
            raise MetricsError(f"`{HEADER}` has more than the {MAX_ENTRIES} numbers that are read")
        for key, one in entries:
            # An integer of JSON has as many digits as it likes, and a float has not.
            if isinstance(one, float) or (isinstance(one, int) and abs(one) < _WHOLE):
                yield key, float(one)


_DOUBLES = {6: "rps_fractional"}
_MAPS = {8: "named_metrics"}
"""Field numbers of `OrcaLoadReport` that gtm has a use for; a map's entries are messages of a key, 1, and a value, 2."""


def _binary(rest: str) -> Iterator[tuple[str, float]]:
    try:
        message = b64decode(rest.strip().encode("ascii"), validate=True)
        for count, (number, value) in enumerate(_fields(message), 1):
            if count > MAX_ENTRIES:
                raise MetricsError(f"`{HEADER}` has more than the {MAX_ENTRIES} numbers that are read")
            if number in _DOUBLES and isinstance(value, float):
                yield _DOUBLES[number], value
            elif number in _MAPS and isinstance(value, bytes):
                entry = dict(_fields(value))
                name, one = entry.get(1, b""), entry.get(2, 0.0)
                if isinstance(name, bytes) and isinstance(one, float):
                    yield f"{_MAPS[number]}.{name.decode()}", one
    except (ValueError, IndexError, struct.error) as error:
        raise MetricsError(f"`{HEADER}` has bytes that are no load report") from error


def _fields(message: bytes) -> Iterator[tuple[int, float | bytes | None]]:
    """A message's fields by number: doubles, and what has a length; None for others, which are passed over.

    Raises:
        ValueError: these are no fields. Also `IndexError` and `struct.error`, where they break off.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value: float | bytes | None = None
        match key & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                (value,) = struct.unpack_from("<d", message, at)
                at += 8
            case 2:
                length, at = _varint(message, at)
                value = message[at : at + length]
                at += length
            case 5:
                at += 4
            case _:
                raise ValueError("a group")
        if not key >> 3 or at > len(message):
            raise ValueError("it breaks off")
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than ten bytes")


def _signals(entries: Iterable[tuple[str, float]]) -> dict[str, float]:
    """What gtm knows of it; of one signal that is said twice, the first."""
    found: dict[str, float] = {}
    for name, value in entries:
        group, _, metric = name.partition(".")
        if group in ("named_metrics", "namedMetrics"):
            signal = NAMED_METRICS.get(metric.removeprefix("vllm:"))
        else:
            signal = _OWN.get(name)
        if signal is not None and 0 <= value <= SIGNALS[signal]:
            found.setdefault(signal, value)
    return found
