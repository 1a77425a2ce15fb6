"""Traces: the trace that a request belongs to goes on to the backend, and sampled ones are exported (OTLP over HTTP, JSON).

A client's `traceparent` (W3C Trace Context, level 1) goes on as it is where nothing is exported. Where it is, a sampled request is a span
of its own: its parent is the client's, the backend's parent is it. Whether a request is sampled is its sender's word if it has one and
`follow` says that it counts, else a draw.

Spans wait in memory, `MOST` at the most, and go out each second; what the collector does not take is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange

_log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two exports."""
MOST = 10_000
"""Spans that wait."""
_AT_ONCE = 1000
_TIMEOUT = 5.0
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SERVER = 2
"""SPAN_KIND_SERVER."""
_ERROR = 2
"""STATUS_CODE_ERROR."""


class TraceContext(NamedTuple):
    """A request's place in a trace: 16 and 8 bytes, and whether it is recorded."""

    trace: bytes
    span: bytes
    sampled: bool


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Where spans go, as in `http://collector:4318`; the share (0 to 1) of requests; whether a client's own word counts."""

    endpoint: str
    sample: float = 0.01
    follow: bool = True


def read_parent(value: bytes) -> TraceContext | None:
    """What a `traceparent` says (§3.2); None if it says nothing that can be followed."""
    found = _PARENT.fullmatch(value.strip())
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    trace, span = bytes.fromhex(found[2].decode()), bytes.fromhex(found[3].decode())
    if not any(trace) or not any(span):
        return None
    return TraceContext(trace, span, bool(int(found[4], 16) & 1))


def written(context: TraceContext) -> bytes:
    """The header line that tells the next one."""
    flags = b"01" if context.sampled else b"00"
    return b"traceparent: 00-%b-%b-%b\r\n" % (
        context.trace.hex().encode(),
        context.span.hex().encode(),
        flags,
    )


class Span(NamedTuple):
    """A request that is recorded: its own place, and its parent's span (empty: it is the first)."""

    context: TraceContext
    parent: bytes


@dataclass(eq=False, repr=False)
class Tracer:
    """See above.

    Args:
        settings: where to, how many.
        region: of the balancer.
        wall: POSIX seconds.
        now: monotonic seconds, the clock of exchanges.
        random: draws samples and names.
    """

    settings: TraceSettings
    region: str
    _: KW_ONLY
    wall: InitVar[Callable[[], float]]
    now: InitVar[Callable[[], float]]
    random: Random

    def __post_init__(self, wall: Callable[[], float], now: Callable[[], float]) -> None:
        self.exported = 0
        self.dropped = 0
        self._offset = wall() - now()
        self._waiting: deque[dict[str, Any]] = deque()

    def begin(self, parent: bytes | None) -> Span | None:
        """A request comes with this `traceparent`, if any; its span if it is recorded."""
        settings, random = self.settings, self.random
        told = None if parent is None else read_parent(parent)
        sampled = told.sampled if told is not None and settings.follow else random.random() < settings.sample
        if not sampled:
            return None
        trace = told.trace if told is not None else random.randbytes(16)
        return Span(
            TraceContext(trace, random.randbytes(8), sampled=True), b"" if told is None else told.span
        )

    def ended(self, span: Span, exchange: Exchange, url: str, how: str, now: float) -> None:
        """Record the span of a request that has ended."""
        if len(self._waiting) >= MOST:
            self.dropped += 1
            return
        attributes: dict[str, Any] = {
            "http.request.method": exchange.head.method.decode("latin-1"),
            "url.path": exchange.head.path.decode("latin-1")[:1000],
            "http.response.status_code": exchange.status,
            "http.request.body.size": exchange.received,
            "http.response.body.size": exchange.returned,
            "gtm.region": self.region,
            "gtm.end": how,
        }
        if url:
            attributes["server.address"] = url
        if exchange.chosen is not None:
            attributes["gtm.chosen_by"] = exchange.chosen.by.value
            attributes["gtm.moved_by_bound"] = "yes" if exchange.chosen.moved else "no"
        if exchange.hedge is not None and exchange.hedge.outcome:
            attributes["gtm.hedged"] = exchange.hedge.outcome
        if exchange.facts.model is not None:
            attributes["gen_ai.request.model"] = exchange.facts.model[:200]
        events = []
        if exchange.first_byte:
            events.append({"timeUnixNano": self._nano(exchange.first_byte), "name": "first byte"})
        self._waiting.append(
            {
                "traceId": span.context.trace.hex(),
                "spanId": span.context.span.hex(),
                "parentSpanId": span.parent.hex(),
                "name": f"{attributes['http.request.method']} {attributes['url.path'][:100]}",
                "kind": _SERVER,
                "startTimeUnixNano": self._nano(exchange.began),
                "endTimeUnixNano": self._nano(now),
                "attributes": [_attribute(name, value) for name, value in attributes.items()],
                "events": events,
                "status": {"code": _ERROR} if exchange.status >= 500 or how == "broken" else {},
            }
        )

    async def run(self) -> None:
        """Export until cancelled."""
        failing = False
        url = f"{self.settings.endpoint.rstrip('/')}/v1/traces"
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
            while True:
                await asyncio.sleep(EVERY)
                while self._waiting:
                    spans = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
                    problem = await _sent(client, url, self._request(spans))
                    if problem:
                        self.dropped += len(spans)
                        if not failing:
                            _log.warning("the collector at %s takes no spans: %s", url, problem)
                    else:
                        self.exported += len(spans)
                    failing = bool(problem)

    def _request(self, spans: list[dict[str, Any]]) -> dict[str, Any]:
        resource = [_attribute("service.name", "gtm-balancer"), _attribute("gtm.region", self.region)]
        scope = {"scope": {"name": "gtm.balancer"}, "spans": spans}
        return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]}

    def _nano(self, at: float) -> str:
        return str(int((self._offset + at) * 1e9))


async def _sent(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> str:
    """Send spans; what went wrong, if anything."""
    try:
        answer = await client.post(url, json=body)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return "" if answer.is_success else f"status {answer.status_code}"


def _attribute(name: str, value: str | int) -> dict[str, Any]:
    kind = {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
    return {"key": name, "value": kind}
