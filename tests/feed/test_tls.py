"""A private CA: the feed, probes and commands believe it where they are told to, and nowhere else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gtm.cli.common.client import control
from gtm.cli.common.exits import CommandError
from gtm.core.model.regions import Probe, ProbeType
from gtm.feed.client import ControlUnreachable, FeedClient, TokenRefused
from gtm.prober.checks import Checker
from gtm.settings import LOOPBACK
from gtm.transport import CertificatesError, context_for, tls_context

HTTPS = Probe(type=ProbeType.HTTPS, timeout=5.0, expected_status=(401,))


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    ca = subject == issuer

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if ca:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA's certificate, and one that it signed for this machine with its key."""
    found = tmp_path_factory.mktemp("ca")
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("a CA of our own", ca_key, "a CA of our own", ca_key)
    (found / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    own = _certificate("control", key, "a CA of our own", ca_key).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (found / "server.pem").write_bytes(own + private)
    return found


@asynccontextmanager
async def refusing(folder: Path) -> AsyncIterator[str]:
    """A TLS server that answers 401; its URL."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 401 Unauthorized\r\nX-GTM-Tier: control\r\nConnection: close\r\n"
        writer.write(head + b'Content-Length: 16\r\n\r\n{"detail": "no"}')
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _spoken(url: str, ca_file: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How far the feed, a probe and a command get: `answer`, or why not."""
    found = []
    async with FeedClient(url, "gtm_none", "edge", ca_file) as feed:
        try:
            await anext(feed.messages(None))
        except TokenRefused:
            found.append("answer")
        except ControlUnreachable as error:
            found.append(str(error))
    checker = Checker(lambda: 1.0, LOOPBACK, ca_file)
    result = await checker.check(url, HTTPS)
    await checker.close()
    found.append(result.detail or "answer")
    if ca_file is not None:
        monkeypatch.setenv("GTM_CA_FILE", str(ca_file))
    try:
        await asyncio.to_thread(lambda: control(url, "gtm_none").get_status())
    except CommandError as error:
        found.append("answer" if str(error).startswith("no: ") else str(error))
    return found


@pytest.mark.parametrize("how", ["", "GTM_CA_FILE", "SSL_CERT_FILE"])
def test_a_ca_of_ones_own(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by either variable it counts; else the feed says which to set."""

    async def work() -> list[str]:
        async with refusing(folder) as url:
            return await _spoken(url, folder / "ca.pem" if how == "GTM_CA_FILE" else None, monkeypatch)

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    if how == "SSL_CERT_FILE":
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    said = asyncio.run(work())
    if how:
        assert said == ["answer"] * 3
    else:
        assert "name that with GTM_CA_FILE or SSL_CERT_FILE" in said[0]
        assert said[1].startswith("tls certificate not accepted: ")
        assert "certificate" in said[2]


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A file that is not there, or holds something else."""
    (tmp_path / "no.pem").write_text("nothing\n")
    for name in ("no.pem", "missing.pem"):
        with pytest.raises(CertificatesError, match=f"GTM_CA_FILE: cannot read certificates.*{name}"):
            tls_context(tmp_path / name)


def test_certificates_are_read_where_a_connection_may_need_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS, to a proxy, and where a file is named; else nobody is trusted, so that a mistake here lets nobody in."""
    monkeypatch.setenv(
        "SSL_CERT_FILE", str(folder / "ca.pem")
    )  # a system's own may be read when one is asked for
    assert context_for("https://127.0.0.1:8443", None, direct=True).cert_store_stats()["x509_ca"] > 0
    assert context_for("http://control.example", None, direct=False).cert_store_stats()["x509_ca"] > 0
    with pytest.raises(CertificatesError):
        context_for("http://127.0.0.1:8080", tmp_path / "missing.pem", direct=True)
    spared = context_for("http://127.0.0.1:8080", None, direct=True)
    assert spared.cert_store_stats()["x509_ca"] == 0
    assert spared.verify_mode is ssl.CERT_REQUIRED
    assert spared.check_hostname


def test_a_token_goes_to_other_machines_over_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands refuse before they connect, unless told."""
    with pytest.raises(CommandError, match=r"in the clear.*GTM_INSECURE_CONTROL"):
        control("http://192.0.2.1:8080", "gtm_none")
    monkeypatch.setenv("GTM_INSECURE_CONTROL", "true")
    control("http://192.0.2.1:8080", "gtm_none")
