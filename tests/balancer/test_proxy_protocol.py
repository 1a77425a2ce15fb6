"""The PROXY protocol: what a header is, who may send one, and that nothing else is taken for one."""

from __future__ import annotations

import asyncio
import ssl
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.plane.client.proxy_protocol import (
    SIGNATURE,
    ProxiedConnection,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)
from gtm.balancer.wire.tls import ServerContext, ServerTls
from tests.balancer.certificates import Authority
from tests.balancer.world import Backend, Peer, World, answering, run, world
from tests.effort import examples
from tests.patience import PATIENCE

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_V4 = IPv4Address("192.0.2.7").packed + IPv4Address("198.51.100.1").packed + b"\x12\x34\x01\xbb"
_V6 = IPv6Address("2001:db8::7").packed + IPv6Address("2001:db8::1").packed + b"\x12\x34\x01\xbb"


def _v2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(rest).to_bytes(2) + rest


_OWN = "127.0.0.1"
"""Whoever is connected here."""
_GOOD: list[tuple[bytes, str | None]] = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 4660 443\r\n", "192.0.2.7"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 4660 443\r\n", "2001:db8::7"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 whatever 1 2\r\n", None),
    (_v2(0x21, 0x11, _V4), "192.0.2.7"),
    (_v2(0x21, 0x21, _V6), "2001:db8::7"),
    (_v2(0x21, 0x11, _V4 + b"\x04\x00\x03abc"), "192.0.2.7"),
    (_v2(0x21, 0x31, bytes(216)), None),
    (_v2(0x21, 0x00, b""), None),
    # LOCAL is the proxy itself, whatever addresses it names.
    (_v2(0x20, 0x00, b""), _OWN),
    (_v2(0x20, 0x11, _V4), _OWN),
    (_v2(0x20, 0x31, bytes(216)), _OWN),
]
_BAD = [
    _GET,
    b"proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
    b"PROXY\r\n\r\n",
    b"PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 3\r\n",
    b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
    b"PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
    b"PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
    b"PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 2\r\n",
    b"PROXY UNKNOWN " + b"x" * 200,
    SIGNATURE[:-1] + b"x" + _v2(0x21, 0x11, _V4)[12:],
    _v2(0x11, 0x11, _V4),
    _v2(0x22, 0x11, _V4),
    _v2(0x21, 0x12, _V4),
    _v2(0x21, 0x11, _V4[:-1]),
    _v2(0x21, 0x21, _V4),
    _v2(0x21, 0x11, _V4 + bytes(5000)),
]


@pytest.mark.parametrize(("raw", "source"), _GOOD)
def test_headers(raw: bytes, source: str | None) -> None:
    """Whole, it is read; of any beginning of it more is awaited; what follows it is not looked at."""
    local = source == _OWN
    expected = ProxyHeader(None if local else source, len(raw), local)
    assert read_proxy_header(raw) == read_proxy_header(raw + b"\x00rest") == expected
    assert all(read_proxy_header(raw[:size]) is None for size in range(1, len(raw)))


@pytest.mark.parametrize("raw", _BAD)
def test_no_headers(raw: bytes) -> None:
    """What is no header is refused, however it is cut: no beginning of it is taken for one."""
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(raw)
    for size in range(1, len(raw)):
        try:
            assert read_proxy_header(raw[:size]) is None
        except ProxyHeaderError:
            break


@settings(max_examples=examples(3000), deadline=None)
@given(
    st.sampled_from([raw for raw, _ in _GOOD] + _BAD), st.binary(max_size=300), st.integers(0, 300), st.data()
)
def test_garbage(raw: bytes, junk: bytes, place: int, data: st.DataObject) -> None:
    """Damaged anywhere, it is a header, none, or not all there yet; it never asks for more than it may."""
    damaged = raw[:place] + junk + raw[place + data.draw(st.integers(0, 5)) :]
    if not damaged:
        return
    try:
        found = read_proxy_header(damaged)
    except ProxyHeaderError:
        return
    if found is None:
        assert len(damaged) < 4096
    else:
        assert found.size <= len(damaged)


async def _listen(w: World, trusted: str, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    networks = [ip_network(trusted)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ProxiedConnection(w.proxy, networks, tls), "127.0.0.1", 0)
    w.address = server.sockets[0].getsockname()
    return server


@pytest.mark.parametrize("cut", [1, 10_000])
def test_behind_a_proxy(cut: int) -> None:
    """The client is who the header says: unknown where it names nobody, the proxy where it says LOCAL."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            server = await _listen(w, "127.0.0.0/8")
            for raw, source in _GOOD:
                client = await w.client()
                for at in range(0, len(raw + _GET), cut):
                    client.send((raw + _GET)[at : at + cut])
                    await asyncio.sleep(0)
                assert (await client.response()).status == 200
                assert w.gate.peers.pop() == source
            for raw in _BAD:
                client = await w.client()
                client.send(raw, b" " * 5000)
                assert await client.end() == b""
            assert not w.gate.peers
            server.close()

    run(main)


def test_only_from_trusted_networks() -> None:
    """Everybody else speaks for himself, and a header from him is no request."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            server = await _listen(w, "192.0.2.0/24")
            assert (await w.ask(_GET)).status == 200
            assert w.gate.peers.pop() == "127.0.0.1"
            for raw, _ in _GOOD:
                client = await w.client()
                client.send(raw, _GET)
                assert (await client.response()).status == 400
            assert not w.gate.peers
            server.close()

    run(main)


def test_a_check_that_names_nobody_is_answered() -> None:
    """Google's load balancers check health with `PROXY UNKNOWN`, which has no client to judge (mastercactapus/caddy2-proxyprotocol#12)."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            server = await _listen(w, "127.0.0.0/8")
            for raw, _ in _GOOD:
                client = await w.client()
                client.send(raw, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                assert (await client.response()).status == 200
            assert not w.gate.peers, "nobody is asked where it stands"
            server.close()

    run(main)


def _tls(tmp_path: Path) -> tuple[ServerContext, ssl.SSLContext]:
    """A listener with a certificate, and who trusts it."""
    ours = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ours.file)
    return ServerContext(ServerTls(certificates=(ours.issue("a", "a.test"),))), context


def test_before_tls(tmp_path: Path) -> None:
    """The header comes before the handshake, alone or in one piece with its beginning."""
    listener, context = _tls(tmp_path)

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            server = await _listen(w, "127.0.0.0/8", listener.context)
            for together in (False, True):
                for header, source in _GOOD:
                    assert await _ask_in_tls(w, context, header, together=together) == b"HTTP/1.1 200 OK"
                    assert w.gate.peers.pop() == source
            client = await w.client()
            client.send(_GOOD[0][0] + _GET)  # no handshake
            await client.end()
            assert not w.gate.peers
            server.close()

    run(main)


def test_tls_of_who_is_no_proxy(tmp_path: Path) -> None:
    """A client that comes past the proxies begins its handshake at once, and is who it is."""
    listener, context = _tls(tmp_path)

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            server = await _listen(w, "192.0.2.0/24", listener.context)
            for together in (False, True):
                assert await _ask_in_tls(w, context, b"", together=together) == b"HTTP/1.1 200 OK"
                assert w.gate.peers.pop() == "127.0.0.1"
            server.close()

    run(main)


async def _ask_in_tls(w: World, context: ssl.SSLContext, header: bytes, *, together: bool) -> bytes:
    """A client of the test's own, so that the header and the first bytes of the handshake can be one piece."""
    client = await w.client()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="a.test")
    if not together:
        client.send(header)
        await asyncio.sleep(0.01)
        header = b""
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            client.send(header + outgoing.read())
            header = b""
            incoming.write(await _more(client))
    tls.write(_GET)
    client.send(outgoing.read())
    while True:
        try:
            return tls.read(65536).partition(b"\r\n")[0]
        except ssl.SSLWantReadError:
            incoming.write(await _more(client))


async def _more(client: Peer) -> bytes:
    """What comes next; a connection that has ended brings nothing any more."""
    found = await asyncio.wait_for(client.reader.read(65536), PATIENCE)
    assert found, "the balancer has ended the connection"
    return found
