"""TLS with real handshakes: names, client certificates, renewal under live connections, backends with their own authority."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from gtm.balancer.config import BalancerDocument
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.client.proxy_protocol import ProxiedConnection
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.wire.tls import (
    BackendContext,
    BackendTls,
    ClientCertificates,
    ServerCertificate,
    ServerContext,
    ServerTls,
    TlsError,
)
from gtm.runtime.balancer.carrier import Front
from tests.balancer.certificates import Authority
from tests.balancer.world import Backend, Peer, World, answering, run, world

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def _secure(settings: ServerTls) -> AsyncIterator[tuple[World, ServerContext]]:
    listener = ServerContext(settings)
    async with world(await Backend(answering(_OK)).start()) as w:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: ProxiedConnection(w.proxy, (), listener.context), "127.0.0.1", 0
        )
        w.address = server.sockets[0].getsockname()
        try:
            yield w, listener
        finally:
            server.close()


def _trusting(authority: Authority, own: ServerCertificate | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.file)
    if own is not None:
        context.load_cert_chain(own.chain, own.key)
    return context


def _shown(peer: Peer) -> str:
    found = x509.load_der_x509_certificate(peer.writer.get_extra_info("ssl_object").getpeercert(True))
    return str(found.subject.rfc4514_string())


async def _asks(client: Peer) -> int:
    client.send(_GET)
    return (await client.response()).status


def test_names(tmp_path: Path) -> None:
    """Each client is shown the certificate of the name that it asks for; one that no certificate has: the first."""
    ours = Authority(tmp_path, "ca")
    settings = ServerTls(
        certificates=(
            ours.issue("first", "first.test"),
            ours.issue("wild", "*.wild.test"),
            ours.issue("b", "b.wild.test"),
        )
    )

    async def main() -> None:
        async with _secure(settings) as (w, _):
            for name, shown in (
                ("first.test", "CN=first"),
                ("FIRST.test", "CN=first"),
                ("x.wild.test", "CN=wild"),
                ("b.wild.test", "CN=b"),
            ):
                client = await w.client(ssl=_trusting(ours), server_hostname=name)
                assert _shown(client) == shown
                assert await _asks(client) == 200
            lax = _trusting(ours)
            lax.check_hostname = False
            for other in ("x.y.wild.test", "wild.test", "other.test"):
                assert _shown(await w.client(ssl=lax, server_hostname=other)) == "CN=first"

    run(main)


async def _refused(w: World, context: ssl.SSLContext) -> bool:
    """TLS 1.3: the client learns of it when it reads."""
    try:
        client = await w.client(ssl=context, server_hostname="first.test")
        return await _asks(client) != 200
    except (OSError, asyncio.IncompleteReadError):
        return True


def test_client_certificates(tmp_path: Path) -> None:
    """Required: nobody passes without a good one. Wanted: nobody passes with a bad one."""
    ours, theirs = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    own, foreign = ours.issue("client", "c"), theirs.issue("stranger", "c")
    certificate = ours.issue("first", "first.test")

    async def main() -> None:
        for asked, without in ((ClientCertificates.REQUIRED, True), (ClientCertificates.WANTED, False)):
            async with _secure(
                ServerTls(certificates=(certificate,), client_certificates=asked, client_ca=ours.file)
            ) as (w, _):
                assert not await _refused(w, _trusting(ours, own))
                assert await _refused(w, _trusting(ours, foreign))
                assert await _refused(w, _trusting(ours)) is without
                await w.until(lambda w=w: not w.picker.in_flight)  # type: ignore[misc]

    run(main)


def test_renewal(tmp_path: Path) -> None:
    """New handshakes get new certificates and authorities; old connections go on; what is broken changes nothing."""
    ours, later = Authority(tmp_path, "ca"), Authority(tmp_path, "later")
    certificate = ours.issue("first", "first.test", file="tls")
    settings = ServerTls(
        certificates=(certificate,),
        client_certificates=ClientCertificates.REQUIRED,
        client_ca=tmp_path / "clients.pem",
    )
    (tmp_path / "clients.pem").write_bytes(ours.file.read_bytes())
    old, new = ours.issue("old", "c"), later.issue("new", "c")

    async def main() -> None:
        async with _secure(settings) as (w, listener):
            kept = await w.client(ssl=_trusting(ours, old), server_hostname="first.test")
            assert _shown(kept) == "CN=first"
            assert listener.look() is None
            good = certificate.key.read_bytes()
            certificate.key.write_bytes(b"no key")
            problem = listener.look()
            assert problem is not None
            assert str(certificate.key) in problem
            assert listener.look() is None  # said once
            again = await w.client(ssl=_trusting(ours, old), server_hostname="first.test")
            assert (_shown(again), await _asks(again)) == ("CN=first", 200)
            certificate.key.write_bytes(good)
            ours.issue("second", "first.test", file="tls")
            (tmp_path / "clients.pem").write_bytes(later.file.read_bytes())
            assert listener.look() is None
            assert await _asks(kept) == 200
            fresh = await w.client(ssl=_trusting(ours, new), server_hostname="first.test")
            assert (_shown(fresh), await _asks(fresh)) == ("CN=second", 200)
            assert await _refused(w, _trusting(ours, old))

    run(main)


class _Resuming:
    """A client that keeps its session; in threads, for only blocking sockets take one."""

    def __init__(self, authority: Authority, own: ServerCertificate, version: ssl.TLSVersion) -> None:
        self._context = _trusting(authority, own)
        self._context.maximum_version = version
        self.session: ssl.SSLSession | None = None

    async def ask(self, w: World, connected: socket.socket | None = None) -> tuple[bytes, bool | None]:
        """The first line of the answer (nothing: it was refused), and whether the session was resumed."""
        return await asyncio.to_thread(self._ask, connected or socket.create_connection(w.address))

    def _ask(self, connected: socket.socket) -> tuple[bytes, bool | None]:
        try:
            with self._context.wrap_socket(
                connected, server_hostname="first.test", session=self.session
            ) as tls:
                tls.sendall(_GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                line = tls.recv(65536).partition(b"\r\n")[0]
                while tls.recv(65536):
                    pass
                if self.session is None:
                    self.session = tls.session
                return line, tls.session_reused
        except OSError:
            return b"", None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("asked", [ClientCertificates.REQUIRED, ClientCertificates.WANTED])
def test_no_session_outlives_the_authority_that_it_was_made_under(
    tmp_path: Path, asked: ClientCertificates, version: ssl.TLSVersion
) -> None:
    """Nor one that is resumed on a connection which was open before; a renewed certificate ends sessions, and refuses nobody."""
    ours, later = Authority(tmp_path, "ca"), Authority(tmp_path, "later")
    certificate = ours.issue("first", "first.test", file="tls")
    settings = ServerTls(
        certificates=(certificate,), client_certificates=asked, client_ca=tmp_path / "clients.pem"
    )
    (tmp_path / "clients.pem").write_bytes(ours.file.read_bytes())
    old = _Resuming(ours, ours.issue("old", "c"), version)
    new = _Resuming(ours, later.issue("new", "c"), version)
    by_id = version is ssl.TLSVersion.TLSv1_2  # of 1.3 there are tickets alone

    async def main() -> None:
        async with _secure(settings) as (w, listener):
            good = b"HTTP/1.1 200 OK"
            assert await old.ask(w) == (good, False)
            assert await old.ask(w) == (good, by_id)
            early = socket.create_connection(w.address)
            await w.until(lambda: len(entered) == 3)
            (tmp_path / "clients.pem").write_bytes(later.file.read_bytes())
            assert listener.look() is None
            assert (await old.ask(w, early))[0] == b""
            assert (await old.ask(w))[0] == b""
            assert await new.ask(w) == (good, False)
            assert await new.ask(w) == (good, by_id)
            ours.issue("second", "first.test", file="tls")
            assert listener.look() is None
            assert await new.ask(w) == (good, False)

    entered: list[None] = []
    made = ProxiedConnection.connection_made

    def counted(self: ProxiedConnection, transport: asyncio.BaseTransport) -> None:
        entered.append(None)
        made(self, transport)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProxiedConnection, "connection_made", counted)
        run(main)


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    """They say what is wrong, and where."""
    ours = Authority(tmp_path, "ca")
    one, other = ours.issue("a", "a"), ours.issue("b", "b")
    with pytest.raises(ValueError, match="certificates"):
        ServerTls(certificates=())
    with pytest.raises(ValueError, match="client_ca"):
        ServerTls(certificates=(one,), client_certificates=ClientCertificates.REQUIRED)
    with pytest.raises(ValueError, match="client_certificates"):
        ServerTls(certificates=(one,), client_ca=ours.file)
    with pytest.raises(TlsError, match=r"b-key\.pem"):
        ServerContext(ServerTls(certificates=(ServerCertificate(chain=one.chain, key=other.key),)))
    with pytest.raises(TlsError, match=r"gone\.pem"):
        ServerContext(ServerTls(certificates=(ServerCertificate(chain=tmp_path / "gone.pem", key=one.key),)))
    with pytest.raises(TlsError, match=r"gone\.pem"):
        BackendContext(BackendTls(ca=tmp_path / "gone.pem"))


def _server_side(ours: Authority, certificate: ServerCertificate, *, asks: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ours.file)
    return context


async def _status(url: str, settings: BackendTls) -> int:
    tls = BackendContext(settings)
    async with world(url, tls=lambda: tls.context, server_name=tls.server_name, limits=Limits(tries=1)) as w:
        return (await w.ask(_GET)).status


def test_backends(tmp_path: Path) -> None:
    """A backend must show what its settings say; a name that is not its host's, where they say so; and gets what it asks for."""
    ours, theirs = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    named, own = ours.issue("named", "model.test"), ours.issue("balancer", "b")

    async def main() -> None:
        plain = await Backend(answering(_OK)).start(ssl=_server_side(ours, named, asks=False))
        strict = await Backend(answering(_OK)).start(ssl=_server_side(ours, named, asks=True))
        good = BackendTls(ca=ours.file, server_name="model.test")
        assert await _status(plain, good) == 200
        assert await _status(plain, BackendTls(ca=ours.file)) == 502  # it is not 127.0.0.1
        assert await _status(plain, BackendTls(ca=theirs.file, server_name="model.test")) == 502
        assert await _status(plain, BackendTls(server_name="model.test")) == 502
        assert await _status(strict, good) == 502
        assert (
            await _status(strict, BackendTls(ca=ours.file, certificate=own, server_name="model.test")) == 200
        )

    run(main)


def test_an_answer_that_tls_does_not_end(tmp_path: Path) -> None:
    """A length that the connection's end tells: without TLS's own end somebody else may have ended it (RFC 9112 §9.8)."""
    ours = Authority(tmp_path, "ca")
    context = _server_side(ours, ours.issue("named", "model.test"), asks=False)

    async def script(peer: Peer) -> None:
        request = await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        if b"/cut" in request.start:
            await asyncio.sleep(0.05)
            peer.abort()

    async def main() -> None:
        url = await Backend(script).start(ssl=context)
        tls = BackendContext(BackendTls(ca=ours.file, server_name="model.test"))
        async with world(url, tls=lambda: tls.context, server_name=tls.server_name) as w:
            assert (await w.ask(_GET)).whole
            assert not (await w.ask(_GET.replace(b"/", b"/cut", 1))).whole

    run(main)


@pytest.mark.parametrize("size", [2_000, 40_000])
@pytest.mark.parametrize("said", [b"Connection: close\r\n", b""])
@pytest.mark.parametrize("secure", [False, True])
def test_an_answer_in_bytes_whose_server_goes(tmp_path: Path, secure: bool, said: bytes, size: int) -> None:
    """Its chunks are read in turns; that the connection has ended meanwhile takes none of them."""
    ours = Authority(tmp_path, "ca")
    context = _server_side(ours, ours.issue("named", "model.test"), asks=False) if secure else None
    chunks = b"1\r\nx\r\n" * size + b"0\r\n\r\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + said + b"\r\n" + chunks)

    async def main() -> None:
        url = await Backend(script).start(ssl=context)
        tls = BackendContext(BackendTls(ca=ours.file, server_name="model.test"))
        wanted = {"tls": lambda: tls.context, "server_name": tls.server_name} if secure else {}
        async with world(url, **wanted) as w:
            for _ in range(3):
                answer = await w.ask(_GET)
                assert (answer.whole, len(answer.body)) == (True, size)

    run(main)


def test_urls_of_backends() -> None:
    """What is no URL of a backend is refused with what is one."""
    for url in (
        "ftp://a",
        "a:80",
        "http://",
        "http://a:x",
        "http://a:99999",
        "http://u@a",
        "http://a/b c",
        "http://a?b",
    ):
        with pytest.raises(ValueError, match="is no URL of a backend"):
            Route(url)


def test_authorities_are_read_for_who_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are 2 MB: a balancer whose backends all speak http does without, for each of its workers."""
    read: list[ssl.SSLContext] = []

    def create() -> ssl.SSLContext:
        read.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return read[-1]

    monkeypatch.setattr(ssl, "create_default_context", create)
    front = Front(BalancerDocument.model_validate({"backends": [{"url": "http://127.0.0.1:1", "slots": 1}]}))
    assert front.route("http://127.0.0.1:1").tls is None
    front.renew([front.route("http://127.0.0.1:1")])
    assert not read
    routes = [front.route(f"https://127.0.0.1:{port}") for port in (1, 2)]
    assert [one.tls for one in routes] == read * 2
