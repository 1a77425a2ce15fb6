"""`gtm dns query`: what a DNS server answers on the wire, and beside it the decision that the answer follows from."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import options, output
from gtm.cli.common.commands import Command, offers
from gtm.cli.common.exits import CommandError, Exit
from gtm.settings import DEFAULT_DNS_PORT

if TYPE_CHECKING:
    from gtm.cli.live.dns_asking import Server

app = typer.Typer(no_args_is_help=True)

_DNS_PORT = 53


@app.callback()
def group() -> None:
    """Ask DNS servers."""


@offers(app, having=("data_dir",))
def query(
    ask: Command,
    name: Annotated[str, typer.Argument(help="The domain name.")],
    *,
    rdtype: Annotated[str, typer.Option("--type", help="The record type.")] = "A",
    subnet: Annotated[
        str | None,
        typer.Option(help="The client's network, or an address in it (/24, or /56 of IPv6, is sent)."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="HOST or HOST:PORT; left out: the edge that runs on the data directory."),
    ] = None,
    tcp: Annotated[
        bool, typer.Option("--tcp", help="Ask over TCP; otherwise only where UDP is short.")
    ] = False,
) -> None:
    """Ask an edge's DNS as a resolver does, and show the answer beside the decision behind it.

    Exit code 1 if there are no records in the answer, or the client is refused.
    """
    from gtm.cli.live import dns_asking

    where = server_of(server, ask.data_dir)
    client = None if subnet is None else dns_asking.client_subnet(subnet)
    reply = dns_asking.ask(where, name, dns_asking.record_type(rdtype), client, tcp=tcp)
    explained = dns_asking.ask(where, name, dns_asking.record_type("TXT"), client, tcp=tcp)
    decision = dns_asking.told_decision(explained.message)
    told = {
        "server": str(where),
        "transport": reply.transport,
        "ms": round(reply.milliseconds, 1),
        **dns_asking.described(reply.message),
        "decision": decision,
    }
    if not ask.printed_json(told):
        _show(told)
    refused = decision is not None and decision.get("outcome") != "served"
    if not told["answer"] or refused:
        raise typer.Exit(Exit.NO)


def server_of(given: str | None, data_dir: Path) -> Server:
    """The name server that is asked: a given one, or that of the `gtm serve` that runs on a data directory.

    Raises:
        CommandError: nothing can be asked by the name that was given.
    """
    from gtm.cli.live.dns_asking import Server
    from gtm.runtime.serve.facts import ServeFacts, host_and_port

    if given is None:
        try:
            host, port = host_and_port(ServeFacts.read(data_dir).dns)
        except (OSError, ValueError):
            host, port = options.LOOPBACK, DEFAULT_DNS_PORT
    else:
        try:
            host, port = host_and_port(given if _has_port(given) else f"{_bracketed(given)}:{_DNS_PORT}")
        except ValueError as error:
            raise CommandError(f"--server: `{given}` is no HOST or HOST:PORT") from error
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise CommandError(f"--server: cannot find `{host}`: {error.strerror}", Exit.UNREACHABLE) from error
    return Server(str(found[0][4][0]), port)


def _has_port(text: str) -> bool:
    """Whether a port stands behind the last colon, which those of an IPv6 address are not."""
    return "]:" in text or text.count(":") == 1


def _bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def _show(told: dict[str, Any]) -> None:
    subnet, question = told["client_subnet"], told["question"] or {"name": "none", "type": ""}
    output.facts(
        (
            ("question", f"{question['name']} {question['type']}".rstrip()),
            ("server", f"{told['server']} ({told['transport']}, {told['ms']:.1f} ms)"),
            ("server id", told["server_id"]),
            ("status", f"{told['rcode']}, flags {' '.join(told['flags'])}"),
            ("client subnet", subnet and f"{subnet['network']}, scope /{subnet['scope']}"),
            *(
                ("extended error", f"{error['code']} ({error['name']}) {error['text']}".rstrip())
                for error in told["extended_errors"]
            ),
        )
    )
    for section in ("answer", "authority", "additional"):
        if told[section] or section == "answer":
            output.say(f"\n{section}")
            fields = ("name", "ttl", "type", "data")
            output.records(told[section], dict(zip(fields, fields, strict=True)), empty="no records")
    output.say("\ndecision")
    decision = told["decision"]
    if decision is None:
        output.say("none is told: TXT of the name is no explanation")
        return
    output.facts(
        (key, "; ".join(value) if isinstance(value, list) else value) for key, value in decision.items()
    )
