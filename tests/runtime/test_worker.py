"""What one answering process does beside answering."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address

import dns.edns
import dns.message
import pytest

from gtm.core.model import Policy
from gtm.core.state import State
from gtm.dns.cookies import ServerCookies
from gtm.dns.signatures import PERIOD
from gtm.feed.wire import HeartbeatMessage, KeysMessage, SnapshotMessage, StateMessage, encode
from gtm.runtime.worker import Worker
from gtm.runtime.worker_settings import WorkerSettings
from gtm.settings import DnsSettings
from tests.core.strategies import SHIPPED
from tests.dns.signing import NOW, keys
from tests.dns.world import POLICY, locate, query

SETTINGS = WorkerSettings("dns", "dns-1", -1, (), (), None, None, None, (), False, False, "info")


class _Located:
    """A locator of which the data changes never."""

    def __init__(self, *_: object, **__: object) -> None:
        self.locate = None


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Worker, socket.socket]]:
    """A worker, and the agent's end of its link."""
    monkeypatch.setattr("gtm.runtime.worker.Locator", _Located)
    ours, theirs = socket.socketpair()
    settings = {name: getattr(SETTINGS, name) for name in WorkerSettings.__slots__}
    with ours:
        yield Worker(WorkerSettings(**{**settings, "descriptor": theirs.detach()})), ours


def test_a_worker_ends_with_its_agent(ends: tuple[Worker, socket.socket]) -> None:
    """When the link closes, answering stops."""
    worker, agent = ends
    stopped = threading.Event()
    worker.start(stopped.set)
    agent.close()
    assert stopped.wait(20)


@pytest.mark.parametrize("broken", ["apply", "tick"])
def test_a_worker_that_cannot_be_kept_up_to_date_ends(
    broken: str, ends: tuple[Worker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault beside the answer path must not leave an old View in force for ever: the agent starts another worker."""
    worker, agent = ends

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(worker.holder, broken, fails)
    stopped = threading.Event()
    worker.start(stopped.set)
    agent.sendall(encode(HeartbeatMessage(1.0)))
    assert stopped.wait(20)


def test_clients_that_moved_while_a_view_was_swapped_are_located_anew(
    ends: tuple[Worker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New GeoIP data in the middle of another swap is not taken for done with that swap."""
    worker, _ = ends
    predecessors: list[object] = []

    class Answers:
        def __init__(self, *given: object, **_: object) -> None:
            predecessors.append(given[3])
            if len(predecessors) == 2:
                worker._data += 1  # another thread has loaded new data, and is about to rebuild

    monkeypatch.setattr("gtm.runtime.worker.Answerer", Answers)
    worker.holder.apply(SnapshotMessage.of(1, 1.0, Policy(), SHIPPED))
    worker.holder.apply(StateMessage(State(1)))
    worker.holder.rebuild()
    worker.holder.rebuild()
    assert [one is None for one in predecessors] == [True, False, True, False]


def test_a_worker_says_what_it_is_told_to(
    ends: tuple[Worker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DNS worker answers with the name, the version and the cookies of its settings."""
    given = {name: getattr(SETTINGS, name) for name in WorkerSettings.__slots__}
    _, theirs = socket.socketpair()
    settings = {
        **given,
        "descriptor": theirs.detach(),
        "dns": DnsSettings(nsid="fra-1", rate_limit=0),
        "cookie_secrets": (bytes(16), bytes(range(16))),
    }
    worker = Worker(WorkerSettings(**settings))
    worker.holder.apply(SnapshotMessage.of(1, 1.0, Policy(), SHIPPED))
    worker.holder.apply(StateMessage(State(1)))
    asked = dns.message.make_query(
        "id.server", "TXT", "CH", use_edns=0, options=[dns.edns.CookieOption(bytes(8), b"")]
    )
    assert worker.answerer is not None
    assert worker.limiter is None
    reply = worker.answerer.answer(asked.to_wire(), "192.0.2.1", tcp=False, draw=0.0)
    assert reply is not None
    message = dns.message.from_wire(reply)
    assert message.answer[0].to_text() == 'id.server. 0 CH TXT "fra-1"'
    cookie = message.options[0]
    assert isinstance(cookie, dns.edns.CookieOption)
    packed = ip_address("192.0.2.1").packed
    assert ServerCookies(bytes(16)).check(bytes(8), cookie.server, packed, int(time.time())).proven


@pytest.mark.rfc("4034", "3.1.5", "signatures are renewed while they are valid, whatever else changes")
def test_signatures_are_renewed_while_nothing_else_changes(ends: tuple[Worker, socket.socket]) -> None:
    """An edge that hears nothing new makes its answers anew when the period of their signatures ends."""
    worker, _ = ends
    worker.locator.locate = locate  # type: ignore[method-assign]
    worker.holder.apply(KeysMessage(keys(["demo.test"])))
    worker.holder.apply(SnapshotMessage.of(1, 1.0, POLICY, ()))
    worker.holder.apply(StateMessage(State(1)))
    now = [NOW]
    worker._signer._clock = lambda: now[0]
    asked = query("chat.demo.test", "A", edns=True, want_dnssec=True, id=1)

    def answer() -> bytes | None:
        worker._sign_anew()
        assert worker.answerer is not None
        return worker.answerer.answer(asked, "192.0.2.1", tcp=False, draw=0.5)

    first = answer()
    current = worker.answerer
    assert answer() == first
    assert worker.answerer is current
    now[0] += PERIOD
    second = answer()
    assert second is not None
    assert first is not None
    assert second != first
    assert len(second) == len(first)


def test_each_beat_is_a_window_of_the_limiter(ends: tuple[Worker, socket.socket]) -> None:
    """Each beat gives clients their budgets anew, and counts the replies to those that got the most."""
    worker, _ = ends
    assert worker.limiter is not None
    for _ in range(2):
        worker.limiter.passes("203.0.113.9", bytes(12), bytes(12))
        worker._turn()
    assert worker.counts == {"gtm_dns_top_clients\t203.0.113.0/24": 2}
