"""What one check says of real servers."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificate

from gtm.core.health.verdicts import ProbeResult
from gtm.core.model.regions import Probe, ProbeType
from gtm.prober.checks import Checker, CheckError, target_of
from gtm.settings import LOOPBACK
from gtm.transport import no_room
from tests.descriptors import none_left
from tests.paused import PausedLoop, prompt_server
from tests.ports import free_port
from tests.prober.servers import Answer, http, raw, raw_http, serve

PROBE = Probe(timeout=5.0)
pytestmark = pytest.mark.anyio


async def check(url: str, probe: Probe = PROBE, address: str = "") -> ProbeResult:
    """One check by a checker of its own, at an address or at what the URL's host resolves to."""
    checker = Checker(lambda: 1234.5, LOOPBACK)
    try:
        result = await checker.check(url, probe, address)
        assert result is not None
        return result
    finally:
        await checker.close()


async def detail(answer: Answer, **changes: Any) -> str:
    """What a check says of a server that answers so; empty if it passes."""
    async with serve(answer) as server:
        result = await check(server.url, replace(PROBE, **changes))
    assert result.at == 1234.5
    assert result.ok is not bool(result.detail)
    assert result.ok is (result.latency_ms is not None)
    return result.detail


@pytest.mark.parametrize("kind", list(ProbeType))
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_check_without_descriptors_says_nothing(kind: ProbeType, host: str) -> None:
    """That this process has no room for a connection is no failure of the endpoint."""
    checker = Checker(lambda: 1234.5, LOOPBACK)
    async with serve(http(200, b"ok")) as server:
        url = f"http://{host}:{server.port}"
        probe = replace(PROBE, type=kind, verify_tls=False)
        await checker.check(url, probe)  # what a first check loads needs files
        with none_left():
            assert await checker.check(url, probe) is None
    await checker.close()


def test_what_a_resolver_could_not_do_here() -> None:
    """A resolver's failure is this process's own while it has no descriptors, and the name's else."""
    failed = socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
    assert not no_room(failed)
    with none_left():
        assert no_room(failed)


def test_an_answer_that_came_while_this_process_stood_still_is_one() -> None:
    """An edge that is stopped for a moment saw all regions down at once."""

    async def main() -> ProbeResult:
        asked = asyncio.create_task(check(f"http://127.0.0.1:{server.port}", replace(PROBE, timeout=60)))
        await server.stand_still(90)
        return await asked

    with (
        prompt_server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as server,
        asyncio.Runner(loop_factory=PausedLoop) as runner,
    ):
        assert runner.run(main()).ok


async def test_a_good_answer_passes_with_its_latency() -> None:
    """200 within the timeout is up; one plain request was made, on a connection of its own."""
    async with serve(http(200, b"ok")) as server:
        result = await check(server.url, replace(PROBE, path="/ready?deep=1", host="chat.test"))
    assert result.ok
    assert result.latency_ms is not None
    assert result.latency_ms > 0
    head = server.heads[0].lower()
    assert head.startswith(b"get /ready?deep=1 http/1.1\r\n")
    assert b"\r\nhost: chat.test\r\n" in head
    assert b"\r\nconnection: close\r\n" in head
    assert b"accept-encoding: identity" in head


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not tell round trips (TCP_INFO)")
async def test_connections_tell_their_round_trip() -> None:
    """Passed or failed, over HTTP or TCP: where there was a connection, its handshake was measured."""
    async with serve(http(200)) as server:
        results = [
            await check(server.url, probe)
            for probe in (PROBE, replace(PROBE, type=ProbeType.TCP), replace(PROBE, expected_status=(204,)))
        ]
    assert [result.ok for result in results] == [True, True, False]
    for result in results:
        assert result.connect_ms is not None
        assert 0 < result.connect_ms < 3000
    assert (await check(f"http://127.0.0.1:{free_port()}")).connect_ms is None


@pytest.mark.parametrize(
    ("status", "expected", "says"),
    [
        (200, (200,), ""),
        (204, (200, 204), ""),
        (503, (200,), "status 503, expected 200"),
        (200, (201, 204), "status 200, expected 201 or 204"),
        (302, (200,), "status 302, expected 200"),
    ],
)
async def test_status(status: int, expected: tuple[int, ...], says: str) -> None:
    """The status must be one that is expected; redirects are not followed."""
    answer = http(status, headers=b"Location: http://127.0.0.1:1/\r\n")
    assert await detail(answer, expected_status=expected) == says


@pytest.mark.parametrize(
    ("body", "pattern", "says"),
    [
        (b"all ok now", "ok", ""),
        (b"caf\xc3\xa9", "^café$", ""),
        (b"\xff\xfe ok", "ok$", ""),
        (b"broken", "^ok", "body does not match `^ok`"),
        (b"", "ok", "body does not match `ok`"),
        (b"a" * 65536 + b"ok", "ok", "body does not match `ok`"),
        (b"a" * 65536, r"^(a+)+$", ""),
        (b"a" * 65535 + b"b", r"^(a+)+$", "body does not match `^(a+)+$`"),
        (b"x", "(?=x)", "body_regex `(?=x)` is not a valid RE2 pattern"),
    ],
)
async def test_body(body: bytes, pattern: str, says: str) -> None:
    """The pattern is searched in the first 64 KiB, in linear time."""
    assert await detail(http(200, body), body_regex=pattern) == says


@pytest.mark.parametrize(
    ("body", "path", "value", "says"),
    [
        (b'{"model":{"loaded":true}}', "model.loaded", True, ""),
        (b'{"models":[{"name":"a"},{"name":"b"}]}', "models.1.name", "b", ""),
        (b'{"n":1.0}', "n", 1, ""),
        (b'{"n":null}', "n", None, ""),
        (
            b'{"model":{"loaded":false}}',
            "model.loaded",
            True,
            "json field model.loaded is not true",
        ),
        (b'{"n":1}', "n", True, "json field n is not true"),
        (b'{"n":true}', "n", 1, "json field n is not 1"),
        (b'{"n":0}', "n", None, "json field n is not null"),
        (b'{"n":"1"}', "n", 1, "json field n is not 1"),
        (b'{"model":{}}', "model.loaded", True, "json field model.loaded is missing"),
        (b'{"model":[]}', "model.0", True, "json field model.0 is missing"),
        (b"[1]", "a", 1, "json field a is missing"),
        (b"<html>", "a", 1, "body is not valid json"),
        (b"", "a", 1, "body is not valid json"),
        (b"[" * 60000, "a", 1, "body is nested deeper than 100"),
        (b'"' + b"x" * 70000 + b'"', "a", 1, "body is longer than 64 KiB, so its json cannot be read"),
    ],
)
async def test_json_field(body: bytes, path: str, value: Any, says: str) -> None:
    """A field is found by its dotted path, and compared as JSON compares."""
    assert await detail(http(200, body), json_field=path, json_value=value) == says


async def test_a_long_value_is_cut() -> None:
    """An endpoint's words do not flood the health table."""
    said = await detail(http(200, b'{"a":"' + b"x" * 5000 + b'"}'), json_field="a", json_value=1)
    assert len(said) < 150


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"", 60),
        raw(b"HTTP/1.1 200 OK\r\n", 60),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", 60),
    ],
)
async def test_slow_answers_fail(answer: Answer) -> None:
    """The timeout is for the whole exchange, wherever it stalls."""
    assert await detail(answer, timeout=0.2) == "no answer within 0.2 s"


async def test_an_endless_trickle_fails() -> None:
    """A body that never ends but always goes on does not stretch the timeout."""

    async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    assert await detail(trickle, timeout=0.3) == "no answer within 0.3 s"


async def test_an_endless_flood_is_cut_at_64_kib() -> None:
    """As much as is looked at is read, and no more."""
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"ok" * 8192)
            await writer.drain()
            sent += 16384

    assert await detail(flood, body_regex="ok") == ""
    assert sent < 64 * 1024 * 1024


async def test_compressed_bodies_are_not_unpacked() -> None:
    """What was not asked for is not decoded: no bomb goes off in the prober."""
    answer = http(200, b"\x1f\x8bnonsense", b"Content-Encoding: gzip\r\n")
    assert await detail(answer, body_regex="nonsense") == ""


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "answer is not valid http"),
        (b"", "answer is not valid http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "answer is not valid http"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 200_000, "answer is not valid http"),
    ],
)
async def test_answers_that_are_not_http(data: bytes, says: str) -> None:
    """Another protocol, no answer at all, a body cut short, headers without end."""
    assert (await detail(raw(data))).startswith(says)


@pytest.mark.parametrize("kind", list(ProbeType))
async def test_nobody_listens(kind: ProbeType) -> None:
    """A dead listener is told apart from a slow one."""
    result = await check(f"http://127.0.0.1:{free_port()}", replace(PROBE, type=kind))
    assert result.detail == "connection refused"


async def test_tcp_only_connects() -> None:
    """A TCP check is content with a connection, and says nothing."""
    async with serve(raw(b"")) as server:
        result = await check(server.url, replace(PROBE, type=ProbeType.TCP))
        assert result.ok
        assert server.heads == []


async def test_port_of_the_probe_wins() -> None:
    """A probe may look at another port than clients use."""
    async with serve(http()) as server:
        result = await check("http://127.0.0.1:1/prefix", replace(PROBE, port=server.port))
    assert result.ok
    assert server.heads[0].startswith(b"GET /healthz ")


@pytest.mark.parametrize(
    ("url", "kind", "port", "where"),
    [
        ("http://a.test", ProbeType.HTTP, None, ("a.test", 80)),
        ("http://a.test", ProbeType.HTTPS, None, ("a.test", 443)),
        ("https://a.test", ProbeType.TCP, None, ("a.test", 443)),
        ("https://a.test:8443/x", ProbeType.HTTP, None, ("a.test", 8443)),
        ("https://[2001:db8::1]:8443", ProbeType.TCP, 9, ("2001:db8::1", 9)),
    ],
)
def test_where_a_check_goes(url: str, kind: ProbeType, port: int | None, where: tuple[str, int]) -> None:
    """The endpoint's host; the probe's port, the URL's, or the protocol's."""
    target = target_of(url, replace(PROBE, type=kind, port=port))
    assert (target.host, target.port) == where


def test_ipv6_addresses_stand_in_brackets() -> None:
    """As URLs have it (RFC 3986 §3.2.2)."""
    assert target_of("http://[2001:db8::1]", PROBE).authority == "[2001:db8::1]:80"


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://a:x", "http://a:99999", "http://[::1"])
async def test_an_impossible_url_is_a_failed_check(url: str) -> None:
    """Nothing is raised for it."""
    with pytest.raises(CheckError):
        target_of(url, PROBE)
    assert "url" in (await check(url)).detail


async def test_a_name_that_does_not_resolve() -> None:
    """RFC 6761 §6.4: `invalid` never exists."""
    result = await check("http://nowhere.invalid/")
    assert not result.ok
    assert result.detail


async def test_an_impossible_path_is_a_failed_check() -> None:
    """Whatever a library raises ends up as words."""
    assert await detail(http(), path="/\x00") != ""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=self.test -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


def _ends(certificate: Path) -> float:
    return load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()


async def test_https(certificate: Path) -> None:
    """A certificate nobody vouches for fails, unless the probe says not to look; `host` is the name asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    probe = replace(PROBE, type=ProbeType.HTTPS, host="chat.test:8443")
    async with serve(http(), context) as server:
        strict = await check(server.url, probe)
        assert strict.detail.startswith("tls certificate not accepted: ")
        loose = await check(server.url, replace(probe, verify_tls=False))
        assert loose.ok
        assert loose.certificate is not None
        assert loose.certificate.not_after == _ends(certificate)
        assert loose.status == 200
        # What an endpoint merely says of itself goes no further (law 5).
        assert (loose.certificate.subject, loose.certificate.issuer, loose.certificate.names) == ("", "", ())
    assert names == ["chat.test", "chat.test"]
    assert b"\r\nhost: chat.test:8443\r\n" in server.heads[0].lower()


async def test_https_at_an_address_asks_for_the_urls_host(certificate: Path) -> None:
    """The connection goes to the address, also where the URL's host resolves to nothing; Host and TLS server name are the URL's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with serve(http(), context) as server:
        url = f"https://web.invalid:{server.port}"
        probe = replace(PROBE, type=ProbeType.HTTPS, verify_tls=False)
        assert (await check(url, probe, "127.0.0.1")).ok
    assert names == ["web.invalid"]
    assert f"\r\nhost: web.invalid:{server.port}\r\n".encode() in server.heads[0].lower()


async def test_https_where_http_is_spoken() -> None:
    """The handshake's failure is named."""
    said = await detail(raw(raw_http(400)), type=ProbeType.HTTPS, verify_tls=False, timeout=0.5)
    assert said.startswith(("tls handshake failed", "no answer within"))
