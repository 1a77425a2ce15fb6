"""One health check of one endpoint: HTTP, HTTPS or TCP.

Laws:
  1. A check never raises: whatever happens is a result, with the failure in words an operator can act on. What could not be
     asked for want of descriptors or memory here is no result: it says nothing of the endpoint.
  2. Every check opens a connection of its own. A kept one would hide that nobody listens any more.
  3. The timeout is for the whole exchange, from the name's resolution to the end of the body. Slower is failed.
  4. Nothing an endpoint sends can hurt: at most 64 KiB are read, nothing is decompressed, patterns are RE2's.
  5. Nothing an endpoint sends is repeated but its status, and of a certificate that was verified whose it is: whoever reads of
     health may not read what edges can.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import httpx
import msgspec
import re2
from cryptography.x509 import (
    Certificate as Parsed,
)
from cryptography.x509 import (
    DNSName,
    ExtensionNotFound,
    IPAddress,
    SubjectAlternativeName,
    load_der_x509_certificate,
)

from gtm.core.health.verdicts import ProbeResult
from gtm.core.model.certificates import MAX_NAMES, MAX_TEXT, Certificate
from gtm.core.model.regions import Probe, ProbeType
from gtm.destinations import Destination, DestinationError, addresses
from gtm.nesting import NestingError, shallow
from gtm.settings import Network
from gtm.transport import no_room, tls_context
from gtm.waiting import waiting

# --- Certificates that endpoints show to probes, read. ---
#
# Law: of one that was not verified only its time and its hash are told. What it says of itself is what an endpoint sends, and whoever
# reads of health may not read what edges can (`gtm.prober.checks`, law 5).


@lru_cache(maxsize=1024)
def read_certificate(der: bytes, *, verified: bool) -> Certificate | None:
    """What a certificate says; None if it cannot be read.

    Args:
        der: as the server sent it.
        verified: whether it was, for the name that was asked for.
    """
    try:
        parsed = load_der_x509_certificate(der)
        times = parsed.not_valid_before_utc.timestamp(), parsed.not_valid_after_utc.timestamp()
        if not verified:
            return Certificate(sha256(der).hexdigest(), *times)
        return Certificate(
            sha256(der).hexdigest(),
            *times,
            subject=parsed.subject.rfc4514_string()[:MAX_TEXT],
            issuer=parsed.issuer.rfc4514_string()[:MAX_TEXT],
            names=_names(parsed),
        )
    except ValueError:
        return None


def _names(parsed: Parsed) -> tuple[str, ...]:
    try:
        found = parsed.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return ()
    names = [*found.get_values_for_type(DNSName), *map(str, found.get_values_for_type(IPAddress))]
    return tuple(name[:MAX_TEXT] for name in names[:MAX_NAMES])


# --- One health check of one endpoint: HTTP, HTTPS or TCP. ---


MAX_BODY = 64 * 1024
"""Bytes of a body that are looked at."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SHOWN = 80
"""Longest piece of an endpoint's own words in a detail, in characters."""


class CheckError(Exception):
    """The check failed, for the reason in its message."""


def target_of(url: str, probe: Probe) -> Destination:
    """Where the checks of an endpoint go.

    `probe.port` overrides the URL's port; where neither is given it is the scheme's own (of the probe for HTTP and
    HTTPS, of the URL for TCP).

    Raises:
        CheckError: the URL names no host or an impossible port.
    """
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, probe.port or parts.port
    except ValueError as error:
        raise CheckError(f"the endpoint's url `{url}` cannot be read: {error}") from error
    if not host:
        raise CheckError(f"the endpoint's url `{url}` names no host")
    scheme = parts.scheme if probe.type is ProbeType.TCP else probe.type.value
    return Destination(host, port or _DEFAULT_PORTS.get(scheme, 80))


@dataclass(eq=False, repr=False)
class Checker:
    """Makes checks. Belongs to one event loop; `close` when done.

    Args:
        clock: POSIX seconds, for the results' time.
        allowed: networks that are checked although they are none that edges usually reach out to (`gtm.destinations`).
        ca_file: certificates that count besides the public ones, None for no others.
    """

    clock: Callable[[], float]
    allowed: tuple[Network, ...] = ()
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        self._transports: dict[bool, httpx.AsyncHTTPTransport] = {}

    async def close(self) -> None:
        """Close what is open."""
        for transport in self._transports.values():
            await transport.aclose()
        self._transports = {}

    async def check(self, url: str, probe: Probe, address: str = "") -> ProbeResult | None:
        """Check an endpoint once. None: there was no room here for a connection.

        Args:
            url: the endpoint's URL.
            probe: what to check.
            address: the one to connect to, at the URL's port and with the URL's host as Host and TLS server name; empty: those
                that the URL's host resolves to, of which the first that connects is checked.
        """
        started = monotonic()
        connection = _Connection(verifies=probe.verify_tls)
        try:
            target = target_of(url, probe)
            if probe.type is not ProbeType.TCP:  # a context takes longer to make than a check
                self._transport(verify=probe.verify_tls and probe.type is ProbeType.HTTPS)
            started = monotonic()
            async with waiting(probe.timeout):
                place = Destination(address, target.port) if address else target
                found = await addresses(place, self.allowed)
                share = probe.timeout / len(found)  # of the time, for each to connect
                for tried in found[:-1]:
                    with suppress(OSError, httpx.ConnectError, httpx.ConnectTimeout):
                        await self._try(tried, share, target, probe, connection)
                        break
                else:
                    await self._try(found[-1], None, target, probe, connection)
        except TimeoutError:
            return self._failed(f"no answer within {probe.timeout:g} s", connection)
        except CheckError as error:
            return self._failed(str(error), connection)
        except DestinationError as error:
            hint = f"if that is meant, start the edge with GTM_PROBE_ALLOW={error.literal}"
            return self._failed(f"not probed: {error}; {hint}", connection)
        except Exception as error:  # noqa: BLE001 - law 1: a check never raises, whatever a library throws
            if any(map(no_room, _causes(error))):
                return None
            return self._failed(_describe(error), connection)
        latency_ms = round((monotonic() - started) * 1000, 3)
        return self._result(connection, ok=True, latency_ms=latency_ms)

    async def _try(
        self,
        address: Destination,
        patience: float | None,
        target: Destination,
        probe: Probe,
        connection: _Connection,
    ) -> None:
        """Check a target at one of its addresses; `patience`: seconds to connect; None: as long as the check may take."""
        if probe.type is ProbeType.TCP:
            async with asyncio.timeout(patience):
                await _connect(address, connection)
        else:
            transport = self._transport(verify=probe.verify_tls and probe.type is ProbeType.HTTPS)
            await _exchange(transport, address, target, probe, connection, patience=patience)

    def _failed(self, detail: str, connection: _Connection) -> ProbeResult:
        return self._result(connection, ok=False, detail=detail)

    def _result(
        self, connection: _Connection, *, ok: bool, detail: str = "", latency_ms: float | None = None
    ) -> ProbeResult:
        return ProbeResult(
            ok=ok,
            at=self.clock(),
            detail=detail,
            latency_ms=latency_ms,
            connect_ms=connection.round_trip_ms,
            certificate=connection.certificate,
            status=connection.status,
        )

    def _transport(self, *, verify: bool) -> httpx.AsyncHTTPTransport:
        if verify not in self._transports:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            checked = tls_context(self.ca_file) if verify else False
            self._transports[verify] = httpx.AsyncHTTPTransport(
                verify=checked, trust_env=False, limits=limits
            )
        return self._transports[verify]


class _Connection:
    """A check's connection: what its handshake took, once there is one.

    The kernel's own measure (tcp_info, linux/tcp.h): neither the name's resolution nor a busy event loop is in it.
    """

    _RTT_OFFSET = 68
    """Of `tcpi_rtt`, in microseconds: eight bytes, then fifteen numbers of four before it."""

    round_trip_ms: float | None = None
    certificate: Certificate | None = None
    status: int | None = None

    def __init__(self, *, verifies: bool) -> None:
        self._verifies = verifies

    def secured(self, ssl_object: Any) -> None:
        """Note the certificate that a TLS server has shown, be it accepted or not looked at."""
        shown = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
        if shown is not None:
            self.certificate = read_certificate(shown, verified=self._verifies)

    def made(self, sock: Any) -> None:
        """Read a connected socket; nothing is known where the system has no TCP_INFO."""
        option = getattr(socket, "TCP_INFO", None)
        if sock is None or option is None:
            return
        with suppress(OSError, struct.error):
            info = sock.getsockopt(socket.IPPROTO_TCP, option, self._RTT_OFFSET + 4)
            self.round_trip_ms = struct.unpack_from("=I", info, self._RTT_OFFSET)[0] / 1000

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Hear of httpcore's events (its extension `trace`)."""
        if event == "connection.connect_tcp.complete":
            self.made(info["return_value"].get_extra_info("socket"))
        elif event == "connection.start_tls.complete":
            self.secured(info["return_value"].get_extra_info("ssl_object"))


async def _connect(target: Destination, connection: _Connection) -> None:
    _, writer = await asyncio.open_connection(target.host, target.port)
    connection.made(writer.get_extra_info("socket"))
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _exchange(
    transport: httpx.AsyncHTTPTransport,
    address: Destination,
    target: Destination,
    probe: Probe,
    connection: _Connection,
    *,
    patience: float | None,
) -> None:
    headers = {"accept": "*/*", "accept-encoding": "identity", "connection": "close"}
    headers["user-agent"] = "gtm-prober"
    # The connection goes to an address that was looked at; host and server name are those of the target all the same.
    default = target.port == _DEFAULT_PORTS[probe.type.value]
    host = probe.host or (target.authority.rpartition(":")[0] if default else target.authority)
    headers["host"] = host
    request = httpx.Request("GET", f"{probe.type.value}://{address.authority}{probe.path}", headers=headers)
    request.extensions |= {"trace": connection.trace, "timeout": {"connect": patience}}
    if probe.type is ProbeType.HTTPS:
        request.extensions["sni_hostname"] = urlsplit(f"//{host}").hostname or host
    # The transport itself, not a client: no redirects, cookies, proxies from the environment or second timeouts.
    response = await transport.handle_async_request(request)
    connection.status = response.status_code
    try:
        body, whole = await _read(response)
    finally:
        await response.aclose()
    _judge(probe, response.status_code, body, whole=whole)


async def _read(response: httpx.Response) -> tuple[bytes, bool]:
    """The first 64 KiB of the body, and whether that is all of it."""
    body = bytearray()
    async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw())) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY:
                return bytes(body[:MAX_BODY]), False
    return bytes(body), True


def _judge(probe: Probe, status: int, body: bytes, *, whole: bool) -> None:
    """Compare an answer with what the probe expects.

    Raises:
        CheckError: it is another.
    """
    if status not in probe.expected_status:
        expected = " or ".join(str(code) for code in probe.expected_status)
        raise CheckError(f"status {status}, expected {expected}")
    if probe.body_regex is not None:
        try:
            pattern = _pattern(probe.body_regex)
        except re2.error as error:
            raise CheckError(f"body_regex `{probe.body_regex}` is not a valid RE2 pattern") from error
        if pattern.search(body.decode("utf-8", "replace")) is None:
            raise CheckError(f"body does not match `{probe.body_regex}`")
    if probe.json_field is not None:
        if not whole:
            raise CheckError("body is longer than 64 KiB, so its json cannot be read")
        judge_json(body, probe.json_field, probe.json_value)


def judge_json(body: bytes, path: str, expected: str | float | bool | None) -> None:
    """Hold a body against the value that it is to have at a path of names with dots between.

    Raises:
        CheckError: it has another, or none.
    """
    try:
        value: Any = msgspec.json.decode(shallow(body))
    except NestingError as error:
        raise CheckError(f"body is {error}") from error
    except ValueError as error:
        raise CheckError("body is not valid json") from error
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise CheckError(f"json field {path} is missing")
    # In JSON `true` is not 1, in Python it is.
    if value != expected or isinstance(value, bool) is not isinstance(expected, bool):
        raise CheckError(f"json field {path} is not {_shown(expected)}")


def _shown(value: Any) -> str:
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@lru_cache(maxsize=1024)
def _pattern(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(text, options)


def _describe(error: BaseException) -> str:
    """A library's error in words. Libraries wrap the system's error, which says best what happened."""
    known = (_system_error(cause) for cause in _causes(error))
    said = next((text for text in known if text is not None), None)
    if said is not None:
        return said
    if isinstance(error, httpx.RemoteProtocolError):
        return "answer is not valid http"
    if isinstance(error, httpx.NetworkError):
        return "connection closed before the answer was complete"
    return f"the check could not be made ({type(error).__name__})"


def _system_error(error: BaseException) -> str | None:
    """What the system or its TLS library says; None if the error is not theirs."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls certificate not accepted: {_cut(error.verify_message or str(error))}"
    if isinstance(error, ssl.SSLError):
        return f"tls handshake failed: {_cut(error.reason or str(error))}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    if isinstance(error, OSError) and error.strerror:
        return _cut(error.strerror.lower())
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those it was raised from, groups unpacked, the innermost first."""
    if error is None:
        return
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    yield from _causes(error.__cause__ or error.__context__)
    yield error
