"""What a peer must prove before it sees a request, and where pushes connect to: over real sockets, against servers that lie."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.decide.gate import OwnHandoffs
from gtm.balancer.plane.backend.backends import PeerRoute, UnprovenError
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import OwnKey, PublicKey, PublicKeys, key_text
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import NameServer, Zone
from gtm.feed.current import CurrentView
from gtm.feed.wire import HandoffKeysMessage
from gtm.handoff.jwt import made
from gtm.handoff.proof import PATH, proof, proves, question
from gtm.settings import LOOPBACK
from tests import worlds
from tests.balancer.regions import HOST, regions
from tests.balancer.world import run
from tests.core.strategies import quick
from tests.patience import PATIENCE

KEY, OTHER = made(), made()


def _published(key: OwnKey = KEY, kind: Issuer = Issuer.BALANCER, regions: str = "iad") -> PublicKeys:
    return PublicKeys((PublicKey("bal", key_text(key.public), kind, regions),), 1)


@pytest.mark.parametrize("regions_", ["iad", "ia*", "*"])
def test_a_balancer_of_the_region_proves_it(regions_: str) -> None:
    """By a key that control publishes for a token that speaks for the region."""
    asked = question("iad", bytes(32))
    said = proof(asked, "iad", KEY)
    assert said is not None
    assert proves(asked, said, _published(regions=regions_))


def test_nobody_else_makes_a_balancer_sign_by_another_name() -> None:
    """A key is for all to see, and another region's token may tell it as its own: as often as that comes and goes, pushes are signed by one name."""
    current = CurrentView(time.time)
    own = OwnHandoffs(current, "iad")
    own.use(KEY)
    (honest,) = _published().keys
    names = set()
    for version in range(1, 101):
        others = [PublicKey("a-liar", honest.x, Issuer.BALANCER, "fra")] * (version % 2)
        current.apply(HandoffKeysMessage(PublicKeys((*others, honest), version)))
        names.add(own.issuer)
    assert names == {"bal"}


@pytest.mark.parametrize(
    "keys",
    [
        PublicKeys(),
        _published(OTHER),
        _published(kind=Issuer.EDGE),
        _published(regions="fra"),
        _published(regions=""),
    ],
    ids=["none", "another's", "an edge's", "another region's", "no region's"],
)
def test_other_keys_prove_nothing(keys: PublicKeys) -> None:
    """Not published, of an edge, or of a token that does not speak for the region."""
    asked = question("iad", bytes(32))
    said = proof(asked, "iad", KEY)
    assert said is not None
    assert not proves(asked, said, keys)


def test_a_proof_is_of_one_question() -> None:
    """Of another nonce, or another region, it proves nothing; and a balancer signs for its own region alone, nothing else that is asked."""
    said = proof(question("iad", bytes(32)), "iad", KEY)
    assert said is not None
    assert not proves(question("iad", b"\1" * 32), said, _published())
    assert not proves(question("fra", bytes(32)), said, _published(regions="*"))
    for asked in (
        question("fra", bytes(32)),
        b"",
        b"iad",
        b"iad.x",
        question("iad", bytes(31)),
        b"x." + question("iad", bytes(32)),
    ):
        assert proof(asked, "iad", KEY) is None


@quick(200)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_prove_anything(asked: bytes, said: bytes) -> None:
    """Nor do they raise."""
    assert not proves(asked, said, _published(regions="*"))
    assert not proves(question("iad", bytes(32)), said, _published())


Says = Callable[[bytes], bytes]
"""What a server answers to the head of a request."""


async def _serve(says: Says) -> tuple[asyncio.Server, int, list[bytes]]:
    """A server that notes all that it is sent."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            got.append(head)
            said = says(head)
            writer.write(said)
            if said.startswith(b"HTTP/1.1 200"):
                got.append(await reader.read())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1], got


def _asked(head: bytes) -> bytes:
    """The question in a request's head."""
    return next(line[10:] for line in head.split(b"\r\n") if line.startswith(b"gtm-peer: "))


def _answer(said: bytes, *more: bytes, status: bytes = b"200 OK", length: int = 0) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"HTTP/1.1 %b\r\ngtm-peer: %b\r\n%bcontent-length: %d\r\n\r\n" % (status, said, lines, length)


def _good(head: bytes) -> bytes:
    return proof(_asked(head), "iad", KEY) or b""


_OLD = proof(question("iad", bytes(32)), "iad", KEY) or b""

LIARS: Mapping[str, Says] = {
    "another service": lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "no http": lambda _: b"220 mail ESMTP\r\n",
    "silent end": lambda _: b"",
    "a proof of before": lambda _: _answer(_OLD),
    "an echo": lambda head: _answer(_asked(head)),
    "two": lambda head: _answer(_good(head), b"gtm-peer: " + _good(head)),
    "interim": lambda head: _answer(_good(head), status=b"103 Early Hints"),
    "another's key": lambda head: _answer(proof(_asked(head), "iad", OTHER) or b""),
    "goes on": lambda head: _answer(_good(head)) + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "junk behind": lambda head: _answer(_good(head)) + b"more",
    "ends": lambda head: _answer(_good(head), b"connection: close"),
    "long": lambda head: _answer(_good(head), b"x: " + b"x" * 9000),
    "a body": lambda head: _answer(_good(head), length=9000) + b"x" * 9000,
}


async def _connect(port: int, host: str = "127.0.0.1", **more: Any) -> None:
    told: list[str] = []
    route = PeerRoute(
        f"http://{host}:{port}",
        "iad",
        _published,
        idle=30.0,
        unproven=lambda _url, why: told.append(why),
        **{"allowed": LOOPBACK} | more,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            found = await route.connect(asyncio.get_running_loop(), time.monotonic)
        assert found.usable
        found.abort()
    except UnprovenError:
        assert len(told) == 1
        raise
    finally:
        route.close()


@pytest.mark.parametrize("how", LIARS)
def test_who_proves_nothing_is_sent_nothing(how: str) -> None:
    """But a question that says nothing of any client; the connection ends."""

    async def main() -> None:
        server, port, got = await _serve(LIARS[how])
        async with server:
            with pytest.raises(UnprovenError):
                await _connect(port)
        assert got[0].startswith(b"GET " + PATH + b" HTTP/1.1\r\n")
        assert not any(got[1:])

    asyncio.run(main())


def test_who_proves_it_is_connected_to() -> None:
    """In one piece or in many, with whatever other fields a proxy adds."""

    async def main() -> None:
        server, port, _ = await _serve(lambda head: _answer(_good(head), b"via: 1.1 lb", b"x-peer: 1"))
        async with server:
            await _connect(port)

    asyncio.run(main())


def test_nothing_connects_where_probes_would_not() -> None:
    """The name is resolved once, each of its addresses is looked at, and the connection goes to one of these."""

    async def main() -> None:
        server, port, got = await _serve(lambda head: _answer(_good(head)))
        loop, asked = asyncio.get_running_loop(), []

        async def getaddrinfo(name: str, at: int, **_: Any) -> Any:
            asked.append(name)
            address = "169.254.169.254" if len(asked) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, at))]

        async with server:
            with pytest.raises(UnprovenError, match=r"a loopback address; .*GTM_PROBE_ALLOW=127.0.0.1"):
                await _connect(port, allowed=())
            before, loop.getaddrinfo = loop.getaddrinfo, getaddrinfo  # type: ignore[method-assign]
            try:
                with pytest.raises(UnprovenError, match=r"169.254.169.254, a link-local address"):
                    await _connect(port, "moves.test")
                assert asked == ["moves.test"]
                await _connect(port, "moves.test")
            finally:
                loop.getaddrinfo = before  # type: ignore[method-assign]
            assert asked == ["moves.test"] * 2
        assert len(got) <= 2

    asyncio.run(main())


def test_a_client_s_credentials_stay_where_the_peer_is_none() -> None:
    """A policy's endpoint leads to another service: it sees no request, and the client is served here as if nothing had been."""

    async def main() -> None:
        server, port, got = await _serve(lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nSECRET")

        def policy(ports: Mapping[str, int]) -> Policy:
            ends = {"iad": ports["iad"], "dub": port}
            service = worlds.service("chat", "iad dub", hostnames=(HOST.decode(),))
            return worlds.policy(
                *(
                    worlds.region(name, Endpoint(f"http://127.0.0.1:{ends[name]}", ("192.0.2.7",)))
                    for name in ends
                ),
                Zone("test", "ns1.test", "hostmaster.test", (NameServer("ns1.test", ("192.0.2.53",)),)),
                service,
            )

        async with server, regions(policy, {"iad": 1, "dub": 1}) as w:
            await w.fill("iad")
            asked = await w.ask("iad", "US", b"authorization: Bearer tenants-key", body=b"hello")
            iad = w.all["iad"]
            await w.until(lambda: bool(iad.pusher.unproven), "it is tried")
            await w.until(lambda: iad.admission.admission.waiting == 1, "it waits")
            iad.let_go()
            await w.until(lambda: len(iad.held) == 1, "its turn")
            iad.let_go()
            assert (await w.answer(asked)).body == b"iad"
            assert iad.pusher.counts["dub", "failed"] == 1
        assert not any(b"tenants-key" in one or b"hello" in one for one in got)

    run(main)
