"""Certificates made on the spot."""

from __future__ import annotations

import datetime as dt
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gtm.balancer.wire.tls import ServerCertificate

_DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates, and writes them to files."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.certificate = self._sign(self._key, self._name, [], authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self.certificate))

    def issue(self, name: str, *hosts: str, file: str | None = None) -> ServerCertificate:
        """A certificate for these hosts, in files of its name."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = ServerCertificate(
            chain=self._folder / f"{file or name}-chain.pem", key=self._folder / f"{file or name}-key.pem"
        )
        _write(made.chain, _pem(self._sign(key, _name(name), list(hosts), authority=False)))
        _write(
            made.key,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        return made

    def _sign(
        self, key: ec.EllipticCurvePrivateKey, name: x509.Name, hosts: list[str], *, authority: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(file: Path, data: bytes) -> None:
    """A new file in the place of the old one, as tools that renew certificates do."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)
