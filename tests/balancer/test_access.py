"""The access log's lines, as docs/balancer.md ("Access log") says them: one for each request however it ended, and whatever bytes it had."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gtm.balancer.plane.access import AccessLine, AccessLines, ClientDetail
from gtm.balancer.plane.contracts import PushedRequest, SentRequest
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.refusals import Refusal
from gtm.geoip.client import ClientFinder
from tests.balancer.steps import STEPS, play
from tests.balancer.test_gate import KEY, PROXY, _asked, _gate
from tests.balancer.world import Backend, Peer, World, answering, run, world
from tests.docs.blocks import ROOT
from tests.effort import examples
from tests.memory import held
from tests.system.balancers import BERLIN, MOUNTAIN_VIEW

PAGE = (
    (ROOT / "docs/balancer.md").read_text().partition("### Access log\n")[2].partition("### Admission\n")[0]
)
REQUIRED = {"time", "how", "total_ms"}
HOW = {"answered", "refused", "cancelled", "broken"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_PUT = b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc"
_GET = b"GET /v1/models?key=secret HTTP/1.1\r\nhost: a\r\nuser-agent: agent/1\r\n\r\n"


class Lines:
    """What was put, read as the page says it is written."""

    def __init__(
        self, clients: ClientDetail = ClientDetail.NETWORK, trusted: tuple[str, ...] = (), **more: Any
    ) -> None:
        self.raw: list[bytes] = []
        finder = ClientFinder([ip_network(one) for one in trusted])
        self.log = AccessLines(self.raw.append, clients=clients, find=finder.find, **more)

    @property
    def read(self) -> list[dict[str, Any]]:
        return [read(one) for one in self.raw]

    @property
    def last(self) -> dict[str, Any]:
        return read(self.raw[-1])


def read(raw: bytes) -> dict[str, Any]:
    """One line; it is as the page says."""
    assert raw.endswith(b"\n")
    assert len(raw) <= 4096
    text = raw[:-1].decode("ascii")
    assert text.isprintable()
    assert text.splitlines() == [text]
    found: dict[str, Any] = json.loads(text)
    assert REQUIRED <= found.keys() <= set(AccessLine.__struct_fields__)
    assert None not in found.values()
    assert found["how"] in HOW
    assert TIME.fullmatch(found["time"])
    assert (found["how"] == "refused") <= ("code" in found)
    assert found.get("queue_ms", 0) <= found["total_ms"] + 0.1
    assert found.get("first_byte_ms", 0) <= found["total_ms"] + 0.1
    assert "?" not in found.get("path", "")
    assert not {"backend", "pushed_to"} <= found.keys()
    return found


def test_the_page_lists_each_field_and_its_example_is_a_line() -> None:
    """With nothing that is not there."""
    (example,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found = read(example.encode())
    listed = {
        name
        for cell in re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert listed == set(AccessLine.__struct_fields__)
    assert listed - found.keys() == {"code", "hedged", "pushed_to"}


# --- one for each ---


@settings(max_examples=examples(300, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_whatever_happens_each_request_has_a_line(steps: list[tuple[Any, ...]]) -> None:
    """As many lines as requests were judged, as many of each kind as the metrics have counted, a code for each refusal counted."""
    lines = Lines()

    async def main() -> None:
        w = await play(steps, lines.log)
        found = lines.read
        whole = [one for one in found if "method" in one]
        assert len(whole) == len(w.ends)
        stats = w.proxy.stats
        ends = Counter({(status, how): 0 for _, status, how in stats.requests})
        for (_, status, how), count in stats.requests.items():
            ends[status, how] += count
        told = Counter((one.get("status", 0), one["how"]) for one in whole)
        for how in ("answered", "broken"):
            assert {key: n for key, n in told.items() if key[1] == how} == {
                key: n for key, n in ends.items() if key[1] == how
            }
        # One whose body could not be read counts as cancelled there; its client was told more.
        assert all(told[key] >= n for key, n in ends.items() if key[1] == "refused")
        assert all(told[key] <= n for key, n in ends.items() if key[1] == "cancelled")
        assert Counter(one["code"] for one in found if "code" in one) == stats.refusals
        assert all(one["path"] in ("/", "/healthz", "/v1/chat/completions") for one in whole)
        urls = {url for url, _, _ in stats.requests if url}
        assert urls <= {one["backend"] for one in whole if "backend" in one}
        assert all("backend" in one or "pushed_to" in one for one in whole if one["how"] == "broken")

    run(main)


def _one(raw: bytes, answer: bytes | None = _OK, **more: Any) -> dict[str, Any]:
    """The line of one request to a backend that answers this, if anything, and closes its connection."""
    lines = Lines(**more)
    counted: list[tuple[str, int, str]] = []

    async def main() -> None:
        async def once(peer: Peer) -> None:
            await peer.request()
            peer.send(answer or b"")

        backend = Backend(once)
        async with world(await backend.start(), log=lines.log) as w:
            client = await w.client()
            client.send(raw)
            await w.until(lambda: bool(lines.raw))
            counted.extend(w.proxy.stats.requests)

    run(main)
    (line,) = lines.read
    assert all((status, how) == (line["status"], line["how"]) for _, status, how in counted), (
        "as metrics have it"
    )
    return line


def test_an_answered_one() -> None:
    """What of it is known without a policy."""
    line = _one(_GET, clients=ClientDetail.FULL)
    assert line.pop("backend").startswith("http://127.0.0.1:")
    at = datetime.fromisoformat(line.pop("time"))
    assert abs(at.timestamp() - datetime.now(at.tzinfo).timestamp()) < 60
    assert line.pop("first_byte_ms") <= line.pop("total_ms")
    assert line == {
        "how": "answered",
        "client": "127.0.0.1",
        "method": "GET",
        "path": "/v1/models",
        "status": 200,
        "queue_ms": 0.0,
        "bytes_in": 0,
        "bytes_out": 2,
        "user_agent": "agent/1",
    }


@pytest.mark.parametrize(
    ("raw", "answer", "said"),
    [
        (
            _PUT.replace(b"PUT", b"POST"),
            None,
            {"how": "refused", "status": 502, "code": "backend_failed", "bytes_in": 3},
        ),
        (_PUT, None, {"how": "refused", "status": 502, "code": "backend_failed"}),
        (
            _GET,
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nha",
            {"how": "broken", "status": 200, "bytes_out": 2, "code": None},
        ),
        (
            b"BAD\r\n\r\n",
            _OK,
            {"how": "refused", "status": 400, "code": "malformed", "method": None, "path": None},
        ),
        (
            b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
            _OK,
            {"how": "refused", "status": 501, "code": "method"},
        ),
        (b"GET /p HTTP/1.1\r\n\r\n", _OK, {"how": "refused", "status": 400, "code": "host", "path": "/p"}),
        (
            b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
            _OK,
            {"how": "answered", "status": 200, "path": "/healthz", "backend": None, "first_byte_ms": None},
        ),
        *(  # a number against caches, and HAProxy's own way to ask (standardnotes/server issue 1038)
            (line + b" HTTP/1.1\r\nhost: a\r\n\r\n", _OK, {"how": "answered", "status": 200, "backend": None})
            for line in (b"HEAD /healthz?_=1695", b"OPTIONS /healthz")
        ),
        (
            b"POST /p HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            _OK,
            {"how": "refused", "status": 400, "code": "malformed", "method": "POST"},
        ),
        (
            b'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"model":"m"}',
            _OK,
            {"model": "m", "bytes_in": 13, "bytes_out": 2},
        ),
        (
            f"GET / HTTP/1.1\r\nhost: a\r\ntraceparent: 00-{TRACE}-{PARENT}-00\r\n\r\n".encode(),
            _OK,
            {"trace": TRACE, "user_agent": None},
        ),
    ],
)
def test_how_it_ended(raw: bytes, answer: bytes | None, said: dict[str, Any]) -> None:
    """None: that is left out."""
    line = _one(raw, answer)
    assert {name: line.get(name) for name in said} == said
    if said.get("how") == "broken" or said.get("code") == "backend_failed":
        assert "backend" in line


async def _waiting(w: World) -> None:
    w.admission.holds = True
    client = await w.client()
    client.send(_GET)
    await w.until(lambda: bool(w.admission.waiting))


def test_of_one_that_waited_the_queue_is_told() -> None:
    """However it ended: admitted, its time up, gone, refused by a law that has changed."""
    lines = Lines()

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start(), log=lines.log) as w:
            for what in ("admitted", "refused", "gone", "law"):
                await _waiting(w)
                w.clock.ahead += 3.0
                (exchange,) = w.admission.waiting
                if what == "admitted":
                    w.admission.waiting.clear()
                    exchange.admitted()
                elif what == "refused":
                    exchange.refuse(Refusal(504, "deadline", "x"))
                elif what == "gone":
                    w.clients[-1].abort()
                else:
                    w.gate.renewed = Refusal(451, "refused_residency", "x")
                    w.admission.waiting.clear()
                    exchange.admitted()
                await w.until(lambda: len(lines.raw) == len(w.clients))
                assert 3000 <= lines.last["queue_ms"] < 13_000
                assert lines.last["total_ms"] >= 3000

    run(main)
    found = [(one["how"], one.get("status"), one.get("code")) for one in lines.read]
    assert found == [
        ("answered", 200, None),
        ("refused", 504, "deadline"),
        ("cancelled", None, None),
        ("refused", 451, "refused_residency"),
    ]


def test_a_push_is_told_by_its_region_and_only_if_it_was_taken() -> None:
    """One that the peer gave back is the backend's that had it then."""
    lines = Lines()

    async def main() -> None:
        far = Backend(
            answering(
                _OK.replace(b"\r\n\r\n", b"\r\ngtm-push: taken\r\n\r\n"),
                b"HTTP/1.1 503 No\r\ngtm-push: not-taken\r\ncontent-length: 0\r\n\r\n",
            )
        )
        here, there = await Backend(answering(_OK)).start(), await far.start()
        async with world(here, there, log=lines.log) as w:
            first, peer = w.picker.routes()
            w.picker.configure((first,))

            class Pusher:
                def push(self, exchange: Exchange, refusal: Refusal | None) -> SentRequest:  # noqa: ARG002
                    flight = SimpleNamespace(end=lambda *_: None)
                    return SentRequest(
                        peer, cast("Any", flight), PushedRequest("r2", b"p", b"gtm-push: x\r\n")
                    )

                def answered(self, sent: SentRequest, said: bytes | None, status: int) -> bool:  # noqa: ARG002
                    return said == b"taken"

                def routes(self) -> tuple[Any, ...]:
                    return (peer,)

            w.admission.holds = True
            w.proxy.pusher = cast("Any", Pusher())
            await w.ask(_GET)
            client = await w.client()
            client.send(_GET)
            await w.until(lambda: bool(w.admission.waiting))
            w.admission.waiting.pop().admitted()
            await w.until(lambda: len(lines.raw) == 2)
            first_line, second = lines.read
            assert (first_line["pushed_to"], first_line.get("backend")) == ("r2", None)
            assert (second.get("pushed_to"), second["backend"]) == (None, here)
            client.send(_GET)
            await w.until(lambda: bool(w.admission.waiting))
            w.admission.waiting[0].refuse(Refusal(503, "queue_full", "x"))
            assert not {"pushed_to", "backend"} & lines.last.keys()
            peer.close()

    run(main)


def test_one_after_the_other_in_a_connection() -> None:
    """A line each, in their order; what cannot be read behind them has its own, without their paths."""
    lines = Lines()

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start(), log=lines.log) as w:
            client = await w.client()
            client.send(_GET * 2 + b"GET /last HTTP/1.1\r\nhost: a\r\nx: 1\r\n\r\n\x00\r\n\r\n")
            await client.end()
            await w.until(lambda: len(lines.raw) == 4)

    run(main)
    found = sorted((one.get("path", ""), one["how"]) for one in lines.read)
    assert found == [
        ("", "refused"),
        ("/last", "answered"),
        ("/v1/models", "answered"),
        ("/v1/models", "answered"),
    ]


def test_one_of_whose_body_no_more_can_be_read_before_its_turn() -> None:
    """It has a line by what was read of it; the one before it goes on."""
    lines = Lines()

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start(), log=lines.log) as w:
            w.admission.holds = True
            client = await w.client()
            client.send(
                _GET + b"POST /behind?a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            )
            await w.until(lambda: bool(w.admission.waiting))
            w.admission.waiting.pop().admitted()
            await client.end()
            await w.until(lambda: len(lines.raw) == 2)

    run(main)
    found = {one["path"]: (one["how"], one["status"], one.get("code")) for one in lines.read}
    assert found == {"/v1/models": ("answered", 200, None), "/behind": ("refused", 400, "malformed")}


def test_a_tunnel_that_a_change_of_the_law_ends() -> None:
    """It was answered, and then refused: by which code is said."""
    lines = Lines()

    async def main() -> None:
        switches = b"HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhi"
        async with world(await Backend(answering(switches)).start(), log=lines.log) as w:
            client = await w.client()
            client.send(b"GET /t HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
            await client.response()
            w.gate.renewed = Refusal(451, "refused_residency", "x")
            w.proxy.look()
            await w.until(lambda: bool(lines.raw))

    run(main)
    (line,) = lines.read
    assert (line["how"], line["status"], line["code"]) == ("refused", 101, "refused_residency")
    assert line["bytes_out"] == 2
    assert "backend" in line


# --- who ---


def _told(
    lines: Lines, region: str, peer: str | None, *headers: tuple[bytes, bytes], **more: Any
) -> dict[str, Any]:
    gate, _ = _gate(region, **more)
    _, asked = _asked(gate, peer, *headers)
    lines.log.ended(
        _exchange(head=asked.head, verdict=asked.verdict, client=asked.client), None, "answered", 1.0
    )
    return lines.last


@pytest.mark.parametrize(
    ("clients", "peer", "shown"),
    [
        (ClientDetail.NETWORK, BERLIN, "95.90.1.0/24"),
        (ClientDetail.FULL, BERLIN, BERLIN),
        (ClientDetail.NONE, BERLIN, None),
        (ClientDetail.NETWORK, "2001:db8:1:2::3", "2001:db8:1::/48"),
        (ClientDetail.FULL, "2001:db8:1:2::3", "2001:db8:1:2::3"),
        (ClientDetail.NETWORK, PROXY, "8.8.8.0/24"),
        (ClientDetail.FULL, PROXY, MOUNTAIN_VIEW),
        (ClientDetail.NONE, PROXY, None),
        (ClientDetail.FULL, None, "unknown"),
        (ClientDetail.NETWORK, None, "unknown"),
        (ClientDetail.NONE, None, None),
    ],
)
@pytest.mark.parametrize("judged", [True, False])
def test_whose_it_is(clients: ClientDetail, peer: str | None, shown: str | None, judged: bool) -> None:
    """By the law's judgement, or of what is for no service by the same rule; no more of the address than is said."""
    lines = Lines(clients, trusted=("10.0.0.0/8",))
    told = (b"x-forwarded-for", MOUNTAIN_VIEW.encode())
    line = _told(lines, "iad", peer, told, **({} if judged else {"service": None}))
    assert line.get("client") == shown
    if not judged:
        gate, _ = _gate("iad")
        _, asked = _asked(gate, peer, told, host=b"other.example")
        lines.log.ended(
            _exchange(head=asked.head, verdict=asked.verdict, client=asked.client), None, "refused", 1.0
        )
        assert lines.raw
        assert json.loads(lines.raw[-1]).get("client") == shown


def test_for_whom_it_is() -> None:
    """Service, tenant, priority: as the law judged them."""
    lines = Lines()
    line = _told(
        lines,
        "iad",
        MOUNTAIN_VIEW,
        (b"authorization", b"Bearer " + KEY),
        (b"gtm-priority", b"batch"),
        keys={sha256(KEY).hexdigest(): "acme"},
    )
    assert (line["service"], line["tenant"], line["priority"]) == ("chat", "acme", "batch")
    assert KEY.decode() not in lines.raw[-1].decode()


def test_of_a_pushed_one_its_network_is_all_that_is_told() -> None:
    """No more of its client is known here: a network's first address is nobody's."""
    lines = Lines(ClientDetail.FULL)
    gate, _ = _gate("iad")
    _, asked = _asked(gate, MOUNTAIN_VIEW)
    assert asked.verdict is not None
    carried = replace(asked.verdict, believed=cast("Any", SimpleNamespace(carried=True)))
    lines.log.ended(_exchange(head=asked.head, verdict=carried), None, "answered", 1.0)
    assert lines.last["client"] == "8.8.8.0/24"


# --- whatever bytes ---


def _exchange(**more: Any) -> Exchange:
    head = SimpleNamespace(method=b"GET", path=b"/", seen={}, lines=[], written=None)
    parts: dict[str, Any] = {
        "head": head,
        "began": 0.0,
        "status": 200,
        "refusal": None,
        "waited": 0.0,
        "received": 0,
        "returned": 0,
        "first_byte": 0.5,
        "facts": SimpleNamespace(model=None),
        "hedge": None,
        "verdict": None,
        "span": None,
        "client": SimpleNamespace(peer=None),
    }
    return cast("Exchange", SimpleNamespace(**{**parts, **more}))


_TEXT = st.text(st.characters(), max_size=256) | st.sampled_from(
    ["\ud800", "\u2028" * 256, "\U0001f600" * 256, "\0" * 256, "\x7f\x85"]
)
_BYTES = st.binary(max_size=3000) | st.sampled_from(
    [b"\x7f" * 2000, b'"' * 2000, b"\\" * 2000, b"\xff" * 2000, b"\x85\n\r"]
)


@settings(max_examples=examples(1500, 300), deadline=None)
@given(_BYTES, _BYTES, _TEXT, st.binary(max_size=70), _BYTES, st.sampled_from([*ClientDetail]))
def test_whatever_bytes_it_is_one_line(  # noqa: PLR0917 - hypothesis gives them so
    path: bytes, agent: bytes, model: str, parent: bytes, target: bytes, clients: ClientDetail
) -> None:
    """JSON, in ASCII, of 4,096 bytes at the most."""
    lines = Lines(clients)
    head = SimpleNamespace(
        method=b"GET",
        path=path.partition(b"?")[0],
        seen={b"traceparent": parent},
        lines=[b"user-agent: %b\r\n" % agent],
        written=object(),
    )
    backend = SentRequest(cast("Any", SimpleNamespace(url="http://a" + "b" * 5000)), cast("Any", None))
    for _ in range(2):
        lines.log.ended(_exchange(head=head, facts=SimpleNamespace(model=model)), backend, "broken", 1.0)
    lines.log.unread(cast("Any", SimpleNamespace(peer="192.0.2.1")), Refusal(400, "malformed", "x"), target)
    first, second, third = lines.read
    assert first | {"time": ""} == second | {"time": ""}
    if len(model) < 40 and not model.encode("utf-16", "surrogatepass").count(b"\xd8"):
        assert first["model"] == model
    assert third.get("client") == {ClientDetail.FULL: "192.0.2.1", ClientDetail.NETWORK: "192.0.2.0/24"}.get(
        clients
    )


@pytest.mark.parametrize(
    ("path", "agent", "said"),
    [
        (b"/a b\xff", b"M\xc3\xbcller\xff", ("/a%20b%FF", "Müller\\xff")),
        (b"/" + b"x" * 2000, b"y" * 2000, ("/" + "x" * 1023, "y" * 256)),
        (b"/plain%20", b" a ", ("/plain%20", "a")),
    ],
)
def test_what_is_cut_and_escaped(path: bytes, agent: bytes, said: tuple[str, str]) -> None:
    """Paths as RFC 3986 has them, agents as they were meant."""
    lines = Lines()
    head = SimpleNamespace(
        method=b"GET", path=path, seen={}, lines=[b"User-Agent: %b\r\n" % agent], written=None
    )
    lines.log.ended(_exchange(head=head), None, "answered", 1.0)
    assert (lines.last["path"], lines.last["user_agent"]) == said


@given(st.floats(0, 4e9))
def test_times_are_the_walls(at: float) -> None:
    """When its head was there, in milliseconds: its end less what it took."""
    lines = Lines(wall=lambda: at + 2.5)
    lines.log.ended(_exchange(began=7.0), None, "answered", 9.5)
    found = datetime.fromisoformat(lines.last["time"]).timestamp()
    assert -0.0015 <= found - at <= 0.0005
    assert lines.last["total_ms"] == 2500


@pytest.mark.drill
def test_memory_of_what_is_written_is_bounded() -> None:
    """Anybody can make up heads and addresses."""
    log = AccessLines(lambda _: None, clients=ClientDetail.FULL, find=ClientFinder([]).find)

    def work() -> None:
        for number in range(30_000):
            client = SimpleNamespace(peer=f"10.0.{number >> 8}.{number & 255}")
            head = SimpleNamespace(method=b"GET", path=b"/%d" % number, seen={}, lines=[])
            log.ended(_exchange(head=head, client=client), None, "answered", 1.0)

    assert held(work) < 3_000_000  # a third of what all of one kind would take
