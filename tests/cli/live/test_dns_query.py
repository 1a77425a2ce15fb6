"""`gtm dns query`."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.message
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.cli.live import dns_asking
from gtm.cli.live.dns_asking import described, told_decision
from gtm.runtime.serve.facts import ServeFacts
from tests.cli.conftest import Gtm
from tests.dns.world import RESOLVER, answerer, query
from tests.effort import examples
from tests.resolvers.harness import MANY, Authority, authority


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Gtm's DNS on 127.0.0.1."""
    with authority(tmp_path_factory.mktemp("dns")) as made:
        yield made


def test_answer_and_decision(bare: Gtm, served: Authority) -> None:
    """The wire answer of a client's network stands above the decision that it follows from."""
    done = bare.ok(
        "dns", "query", "chat.demo.test", "--subnet", "127.1.7.9", "--server", f"127.0.0.1:{served.port}"
    )
    assert served.subnets("chat.demo.test")[-2:] == ["127.1.7.0/24"] * 2
    for line in (
        "question       chat.demo.test. A",
        "status         NOERROR, flags qr aa",
        "client subnet  127.1.7.0/24, scope /16",
        "server id      fra-1",
        "chat.demo.test.  3600  A     192.0.2.1",
        "region    eu",
        "country   DE",
        "rules     gdpr mode=enforce because=client country DE",
    ):
        assert line in done.out.splitlines()


def test_json(bare: Gtm, served: Authority) -> None:
    """Scripts get the same as JSON, here of an answer that needs TCP."""
    told = bare.ok("dns", "query", "big.demo.test", "--server", f"127.0.0.1:{served.port}", "--json").json
    assert (told["transport"], told["rcode"], len(told["answer"])) == ("tcp", "NOERROR", MANY)
    assert {"name": "big.demo.test.", "ttl": 3600, "type": "A", "data": "198.51.100.1"} in told["answer"]
    assert (told["client_subnet"], told["extended_errors"]) == (None, [])
    assert (told["decision"]["region"], told["decision"]["rules"]) == ("big", [])


def test_the_edge_on_the_data_directory_is_asked(bare: Gtm, served: Authority, tmp_path: Path) -> None:
    """Without --server, the running system's own facts say where its DNS is."""
    ServeFacts("http://127.0.0.1:1", "http://127.0.0.1:2", f"127.0.0.1:{served.port}", 1).write(tmp_path)
    done = bare.ok("dns", "query", "demo.test", "--type", "soa", "--tcp", "--data-dir", tmp_path)
    assert f"server     127.0.0.1:{served.port} (tcp" in done.out
    assert "decision\nnone is told" in done.out


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["nope.demo.test"], "NXDOMAIN"),
        (["chat.demo.test", "--type", "MX"], "NOERROR"),
        (["example.com"], "20 (not authoritative) not a zone of this server"),
        (["url-only.demo.test"], "SERVFAIL"),
    ],
)
def test_no_records(bare: Gtm, served: Authority, arguments: list[str], shown: str) -> None:
    """An answer without records ends with 1, whatever the reason."""
    done = bare("dns", "query", *arguments, "--server", f"127.0.0.1:{served.port}")
    assert done.code == 1
    assert shown in done.out
    assert "answer\nno records" in done.out


def test_refusals(bare: Gtm, tmp_path: Path) -> None:
    """A client that is refused gets an address and the reason, and the command ends with 1."""
    with authority(tmp_path, "eu", "ie") as refusing:
        server = f"127.0.0.1:{refusing.port}"
        done = bare("dns", "query", "chat.demo.test", "--subnet", "127.1.7.0/24", "--server", server)
    assert done.code == 1
    assert "192.0.2.250" in done.out
    assert "extended error  18 (prohibited)" in done.out
    assert "outcome   refused_residency" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a..b"], 2, "`a..b` is no domain name"),
        (["a.test", "--type", "NONE SUCH"], 2, "--type: `NONE SUCH` is no record type"),
        (["a.test", "--subnet", "192.0.2.0/33"], 2, "--subnet: `192.0.2.0/33` is no network"),
        (["a.test", "--server", "127.0.0.1:x"], 2, "--server: `127.0.0.1:x` is no HOST or HOST:PORT"),
        (["a.test", "--server", "127.0.0.1:99999"], 2, "is no HOST or HOST:PORT"),
    ],
)
def test_wrong_arguments(bare: Gtm, arguments: list[str], code: int, said: str) -> None:
    """What cannot be asked is said before anything is."""
    done = bare("dns", "query", *arguments)
    assert done.code == code
    assert said in done.err


def test_nobody_answers(bare: Gtm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses connections, and one that stays silent, are unreachable: 3."""
    monkeypatch.setattr(dns_asking, "TIMEOUT", 0.1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        done = bare("dns", "query", "chat.demo.test", "--server", server)
        assert (done.code, "does not answer" in done.err) == (3, True)
        done = bare("dns", "query", "chat.demo.test", "--server", server, "--tcp")
        assert (done.code, "cannot be asked" in done.err) == (3, True)


@pytest.mark.parametrize(
    ("given", "asked"), [("::1", "[::1]:53"), ("[::1]:5300", "[::1]:5300"), ("127.0.0.1", "127.0.0.1:53")]
)
def test_servers(given: str, asked: str) -> None:
    """A server is an address or name, with a port or without, of either family."""
    from gtm.cli.live.dns_query import server_of

    assert str(server_of(given, Path("none"))) == asked


SAMPLES = [
    answerer("eu", "ie").answer(
        query("chat.demo.test", kind, subnet="10.1.2.0/24"), RESOLVER, tcp=False, draw=0.5
    )
    for kind in ("A", "TXT", "SOA")
]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6))
def test_replies_of_any_content_are_shown(sample: bytes, changes: list[tuple[int, int]]) -> None:
    """Whatever a server sends is described as JSON, or is no DNS message."""
    packet = bytearray(sample)
    for at, value in changes:
        packet[at % len(packet)] = value
    try:
        message = dns.message.from_wire(bytes(packet))
    except (dns.exception.DNSException, ValueError):
        return
    json.dumps([described(message), told_decision(message)])
