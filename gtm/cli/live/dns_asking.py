"""Questions to DNS servers, as commands ask them: every failure is a `CommandError`, every answer is plain data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rdtypes.txtbase
import dns.rrset

from gtm.cli.common.exits import CommandError, Exit
from gtm.core.model.addresses import host_port

TIMEOUT = 5.0
_PAYLOAD = 1232
_PREFIXES = {4: 24, 6: 56}
"""What resolvers tell of a client's address (RFC 7871 §11.1)."""
_REPEATED = "rule"
"""The strings of an explanation that may be there several times."""


@dataclass(frozen=True, slots=True)
class Server:
    """The name server that is asked."""

    address: str
    port: int

    def __str__(self) -> str:
        return host_port(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, how it came and how long it took."""

    message: dns.message.Message
    transport: str
    milliseconds: float


def client_subnet(text: str) -> dns.edns.ECSOption:
    """Parse `--subnet`.

    Raises:
        CommandError: neither a network nor an address.
    """
    try:
        if "/" in text:
            network = ip_network(text, strict=False)
        else:
            address = ip_address(text)
            network = ip_network((address, _PREFIXES[address.version]), strict=False)
    except ValueError as error:
        raise CommandError(
            f"--subnet: `{text}` is no network and no address, such as 192.0.2.0/24"
        ) from error
    return dns.edns.ECSOption(str(network.network_address), network.prefixlen)


def record_type(text: str) -> dns.rdatatype.RdataType:
    """Parse `--type`.

    Raises:
        CommandError: no record type.
    """
    try:
        return dns.rdatatype.from_text(text)
    except (dns.exception.DNSException, ValueError) as error:
        raise CommandError(f"--type: `{text}` is no record type, such as A, AAAA, TXT or TYPE65") from error


def ask(
    server: Server,
    name: str,
    rdtype: dns.rdatatype.RdataType,
    subnet: dns.edns.ECSOption | None,
    *,
    tcp: bool,
) -> Reply:
    """One question, over TCP if asked for or if the answer does not fit UDP.

    Raises:
        CommandError: `name` is no name, or there is no answer.
    """
    asked: list[dns.edns.Option] = [dns.edns.GenericOption(dns.edns.OptionType.NSID, b"")]
    if subnet is not None:
        asked.append(subnet)
    try:
        message = dns.message.make_query(name, rdtype, use_edns=0, payload=_PAYLOAD, options=asked)
    except dns.exception.DNSException as error:
        raise CommandError(f"`{name}` is no domain name: {error}") from error
    message.flags &= ~dns.flags.RD
    began = time.perf_counter()
    try:
        if tcp:
            reply, by_tcp = dns.query.tcp(message, server.address, TIMEOUT, server.port), True
        else:
            reply, by_tcp = dns.query.udp_with_fallback(message, server.address, TIMEOUT, server.port)
    except dns.exception.Timeout as error:
        raise CommandError(f"{server} does not answer within {TIMEOUT:.0f} s", Exit.UNREACHABLE) from error
    except (OSError, EOFError, ValueError, dns.exception.DNSException) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandError(
            f"{server} cannot be asked: {said or type(error).__name__}", Exit.UNREACHABLE
        ) from error
    return Reply(reply, "tcp" if by_tcp else "udp", (time.perf_counter() - began) * 1000)


def described(message: dns.message.Message) -> dict[str, Any]:
    """What a reply says, as JSON has it."""
    subnet = None
    server_id = None
    errors = []
    for option in message.options:
        if isinstance(option, dns.edns.ECSOption):
            subnet = {
                "network": f"{option.address}/{option.srclen}",
                "scope": option.scopelen,
            }
        elif isinstance(option, dns.edns.EDEOption):
            errors.append({"code": int(option.code), "name": _error_name(option), "text": option.text or ""})
        elif option.otype == dns.edns.OptionType.NSID:
            server_id = (option.to_wire() or b"").decode(errors="replace")
    question = message.question[0] if message.question else None
    return {
        "question": None
        if question is None
        else {"name": question.name.to_text(), "type": dns.rdatatype.to_text(question.rdtype)},
        "rcode": dns.rcode.to_text(message.rcode()),
        "flags": dns.flags.to_text(message.flags).lower().split(),
        "client_subnet": subnet,
        "server_id": server_id,
        "extended_errors": errors,
        "answer": list(_records(message.answer)),
        "authority": list(_records(message.authority)),
        "additional": list(_records(message.additional)),
    }


def _error_name(option: dns.edns.EDEOption) -> str:
    try:
        return dns.edns.EDECode(option.code).name.lower().replace("_", " ")
    except ValueError:
        return "unknown"


def _records(section: list[dns.rrset.RRset]) -> Iterator[dict[str, Any]]:
    for rrset in section:
        for rdata in rrset:
            yield {
                "name": rrset.name.to_text(),
                "ttl": rrset.ttl,
                "type": dns.rdatatype.to_text(rrset.rdtype),
                "data": rdata.to_text(),
            }


def told_decision(message: dns.message.Message) -> dict[str, Any] | None:
    """The decision that a TXT answer tells; None if the name is no service's."""
    for rrset in message.answer:
        for rdata in rrset:
            if isinstance(rdata, dns.rdtypes.txtbase.TXTBase):
                strings = [part.decode(errors="replace").partition("=") for part in rdata.strings]
                if strings and strings[0][0] == "service":
                    told: dict[str, Any] = {key: value for key, _, value in strings if key != _REPEATED}
                    return {**told, "rules": [value for key, _, value in strings if key == _REPEATED]}
    return None
