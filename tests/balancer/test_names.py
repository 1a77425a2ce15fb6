"""The servers behind names: as many as addresses, as the docs say, whatever the DNS answers and however often it fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from dns.asyncresolver import Resolver
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer import config
from gtm.balancer.config import BalancerDocument
from gtm.balancer.plane.backend.backends import Route, domain_of, placed
from gtm.core.model.problems import PolicyError
from gtm.runtime.balancer.backends_file import (
    EVERY,
    STAYING,
    BackendNames,
    NamedServer,
    look_up,
    of_records,
    one_family,
)
from tests.effort import examples

V4, V6 = socket.AF_INET, socket.AF_INET6
URL = "http://models.test:8000"


def _document(*backends: dict[str, Any]) -> BalancerDocument:
    return config.checked({"backends": list(backends)}, "balancer.yaml", None)


# --- a name's servers ---


@pytest.mark.parametrize(
    ("found", "servers"),
    [
        ([], []),
        ([(V4, "10.0.0.5")], ["10.0.0.5"]),
        ([(V4, "10.0.0.10"), (V4, "10.0.0.9")], ["10.0.0.9", "10.0.0.10"]),
        ([(V6, "fd00::1"), (V4, "10.0.0.5")], ["10.0.0.5,fd00::1"]),
        ([(V6, "fd00::1"), (V4, "10.0.0.5"), (V4, "10.0.0.6")], ["10.0.0.5", "10.0.0.6"]),
        (
            [(V6, "fd00::1"), (V6, "fd00::2"), (V4, "10.0.0.5"), (V4, "10.0.0.6")],
            ["fd00::1", "fd00::2"],
        ),
        ([(V4, "10.0.0.5"), (V4, "10.0.0.5")], ["10.0.0.5"]),
    ],
)
def test_a_name_has_as_many_servers_as_addresses_of_a_family(
    found: list[tuple[int, str]], servers: list[str]
) -> None:
    """A server that has an address of each family is not counted twice (docs/balancer.md#names)."""
    assert [placed("", one)[1:] for one in one_family(found)] == servers


def test_which_urls_are_looked_up() -> None:
    """Host names are; addresses, `localhost`, and those that say `resolve: one` are one server each, reached as before."""
    found = _document(
        {"url": URL},
        {"url": "http://10.0.0.5:8000"},
        {"url": "http://[fd00::1]:8000"},
        {"url": "http://localhost:8000"},
        {"url": "http://api.test", "resolve": "one"},
        {"url": "https://_http._tcp.models.test/v0"},
    )
    names = [one.name for one in found.backends]
    assert names == ["models.test", None, None, None, None, "_http._tcp.models.test"]


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ({"url": "http://_http._tcp.models.test:8000"}, "leave `:8000` out"),
        ({"url": "http://_http._tcp.models.test", "resolve": "one"}, "leave it out"),
    ],
)
def test_names_of_srv_records_have_neither_port_nor_one_address(backend: dict[str, Any], words: str) -> None:
    """The records say the ports; the error says what to do."""
    with pytest.raises(PolicyError, match=words):
        _document(backend)


def test_the_certificate_of_srv_records_is_their_domains() -> None:
    """RFC 9525 §6.2: the reference identifier is the name that was looked up, never what the DNS led to."""
    assert domain_of("_http._tcp.models.test") == "models.test"
    assert domain_of("models.test") == "models.test"
    assert domain_of("_a.b") == "_a.b"


# --- over time ---


class _Dns:
    """What the DNS says of the one name: addresses, or an error."""

    def __init__(self) -> None:
        self.says: Sequence[str] | None = ()
        self.weight = 1.0

    async def ask(self, name: str) -> list[NamedServer]:
        assert name == "models.test"
        if self.says is None:
            raise OSError("the server failed")
        return [NamedServer(((address, None),), self.weight) for address in self.says]


ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
_ANSWERS = st.one_of(st.none(), st.sets(st.sampled_from(ADDRESSES)).map(sorted))
_STEPS = st.lists(
    st.tuples(
        _ANSWERS,
        st.sets(st.sampled_from(ADDRESSES)),
        st.sampled_from([EVERY, EVERY, STAYING]),
        st.sampled_from([1.0, 0.5]),
    ),
    max_size=12,
)


class _Model:
    """Laws 2 and 3 as docs/balancer.md#names has them, for one name."""

    def __init__(self) -> None:
        self.has: set[str] = set()
        self.empty = 0
        self.gone: set[str] = set()
        self.until = 0.0

    def step(self, says: Sequence[str] | None, up: set[str], now: float) -> set[str]:
        if says is not None:
            self.empty = 0 if says else self.empty + 1
            if says or self.empty == 2 or not self.has:
                if self.has - set(says):
                    self.until = now + STAYING
                self.gone = (self.gone | self.has) - set(says)
                self.has = set(says)
                self.empty *= bool(self.has)
        if self.has & up or now >= self.until:
            self.gone = set()
        return self.has | self.gone


@settings(max_examples=examples(300))
@given(_STEPS)
def test_servers_come_and_go_as_records_do(
    steps: list[tuple[Sequence[str] | None, set[str], float, float]],
) -> None:
    """None goes by an outage of the DNS, nor before one that follows it passes its checks; another weight makes no other server."""

    async def run() -> None:
        dns, now, model = _Dns(), 0.0, _Model()
        names, document = BackendNames(dns.ask, lambda: now), _document({"url": URL, "slots": 4})
        for says, up, passes, weight in steps:
            dns.says, dns.weight = says, weight
            await names.look(document, 1.0)
            found = names.applied(document, {f"{URL}#{one}" for one in up}).backends
            expected = model.step(says, up, now)
            assert sorted(one.url for one in found) == (sorted(f"{URL}#{one}" for one in expected) or [URL])
            assert {one.slots for one in found} == {4}
            now += passes
        await names.close()

    asyncio.run(run())


def test_a_name_is_asked_again_in_time_and_forgotten_with_the_file() -> None:
    """Between two look-ups nothing is asked; a name that is no longer in the file is as one that never was."""

    async def run() -> None:
        asked: list[str] = []
        now = 0.0

        async def ask(name: str) -> list[NamedServer]:
            asked.append(name)
            return [NamedServer((("10.0.0.1", None),))]

        names = BackendNames(ask, lambda: now)
        one, other = _document({"url": URL}), _document({"url": "http://other.test"})
        assert await names.look(one, 1.0)
        now = EVERY / 2
        await names.look(one, 1.0)
        assert asked == ["models.test"]
        assert await names.look(other, 1.0)
        assert names.applied(one, ()).backends == one.backends
        assert asked == ["models.test", "other.test"]
        await names.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["a..test", "x" * 64 + ".test"])
def test_what_can_be_no_host_name_is_an_error_of_its_look_up(name: str) -> None:
    """Whoever wrote it, the file or an SRV record: it ends no look-ups of others."""
    with pytest.raises(OSError, match=r"is no host name: .*label"):
        asyncio.run(look_up(name))


# --- SRV ---


class _NameServer(asyncio.DatagramProtocol):
    """A DNS server over UDP that has these records."""

    def __init__(self, *records: str) -> None:
        self._records = [dns.rrset.from_text_list(*_record(one)) for one in records]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        answer.answer = [one for one in self._records if one.name == query.question[0].name]
        if not answer.answer:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self._transport.sendto(answer.to_wire(), addr)


def _record(text: str) -> tuple[str, int, str, str, list[str]]:
    return "_http._tcp.models.test.", 1, "IN", "SRV", text.split("; ")


def _srv(*records: str, name: str = "_http._tcp.models.test") -> dict[str, float]:
    async def run() -> dict[str, float]:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _NameServer(*records), local_addr=("127.0.0.1", 0)
        )
        resolver = Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], transport.get_extra_info("sockname")[1]
        try:
            return {placed("", one.addresses)[1:]: one.weight for one in await of_records(name, resolver)}
        finally:
            transport.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("records", "servers"),
    [
        ("0 10 8000 127.0.0.5.; 0 30 8001 127.0.0.6.", {"127.0.0.5:8000": 0.5, "127.0.0.6:8001": 1.5}),
        ("0 0 8000 127.0.0.5.; 0 0 8000 127.0.0.6.", {"127.0.0.5:8000": 1.0, "127.0.0.6:8000": 1.0}),
        ("0 0 8000 127.0.0.5.; 0 10 8000 127.0.0.6.", {"127.0.0.5:8000": 0.01, "127.0.0.6:8000": 2.0}),
        ("5 10 8000 127.0.0.5.; 0 10 8000 127.0.0.6.", {"127.0.0.6:8000": 1.0}),
        ("0 0 0 .", {}),
    ],
)
def test_srv_records_say_ports_and_weights(records: str, servers: dict[str, float]) -> None:
    """RFC 2782: those of the least priority, weighed against each other; a target `.` says that there is none."""
    assert _srv(records) == servers


def test_a_name_without_srv_records_has_no_servers() -> None:
    """NXDOMAIN is an answer."""
    assert _srv("0 0 1 127.0.0.5.", name="_grpc._tcp.models.test") == {}


def test_a_name_server_that_does_not_answer_is_an_error() -> None:
    """Nothing that was known is forgotten by it."""

    async def run() -> None:
        resolver = Resolver(configure=False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
            closed.bind(("127.0.0.1", 0))
            resolver.nameservers, resolver.port = ["127.0.0.1"], closed.getsockname()[1]
            resolver.lifetime = resolver.timeout = 0.2
            await of_records("_http._tcp.models.test", resolver, patience=0.2)

    with pytest.raises(OSError, match="no SRV records came"):
        asyncio.run(run())


# --- the way to a server ---


@pytest.mark.parametrize(
    ("fragment", "reached"),
    [("127.0.0.2", "127.0.0.2"), ("127.0.0.3,127.0.0.2", "127.0.0.2"), ("127.0.0.2:{port}", "127.0.0.2")],
)
def test_a_server_is_reached_at_its_own_address(fragment: str, reached: str) -> None:
    """Whatever the name says now; where it has two ways and one is closed, by the other."""

    async def run() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.2", 0)
        port = server.sockets[0].getsockname()[1]
        route = Route(f"http://models.test:{port}#{fragment.format(port=port)}")
        assert (route.host, route.port) == ("models.test", port)
        connection = await route.connect(asyncio.get_running_loop(), lambda: 0.0)
        assert connection.transport.get_extra_info("peername")[0] == reached
        connection.abort()
        server.close()

    asyncio.run(run())
