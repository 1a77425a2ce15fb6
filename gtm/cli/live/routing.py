"""`gtm route` and `gtm explain`: ask an edge which region serves a request, and why; or control, by a draft."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import options, output
from gtm.cli.common.commands import Command, asks, offers
from gtm.cli.common.exits import CommandError, Exit
from gtm.core.model.regions import AddressFamily

if TYPE_CHECKING:
    from gtm.client.objects import JsonObject

app = typer.Typer()

_Service = Annotated[str, typer.Argument(help="The service's name; with --host it may be left out.")]
_Host = Annotated[
    str | None, typer.Option(help="A host name of the service, which may state a tenant and a data class.")
]
_ClientAddress = Annotated[
    str | None, typer.Option("--client", help="The client's IP address; left out: this machine's.")
]
_Tenant = Annotated[str | None, typer.Option(help="Whose request it is.")]
_DataClass = Annotated[str | None, typer.Option(help="What kind of data it carries.")]
_Model = Annotated[str | None, typer.Option(help="The model it needs.")]
_Affinity = Annotated[str | None, typer.Option(help="What ties it to earlier ones.")]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The parameters of a look-up; None: not stated."""

    service: str | None
    client_ip: str | None
    tenant: str | None
    data_class: str | None
    model: str | None
    affinity: str | None
    host: str | None = None
    explain: int | None = None
    family: AddressFamily | None = None

    def __post_init__(self) -> None:
        """Raise CommandError where neither a service nor a host name is given."""
        if self.service is None and self.host is None:
            raise CommandError("say which service: its name, or --host with one of its host names")


@offers(app, having=("token",))
def route(
    ask: Command,
    service: _Service = "",
    *,
    host: _Host = None,
    client: _ClientAddress = None,
    tenant: _Tenant = None,
    data_class: _DataClass = None,
    model: _Model = None,
    affinity: _Affinity = None,
    edge_url: options.EdgeUrl = options.EDGE,
) -> None:
    """Ask an edge which region serves a request. Exit code 1 if it is refused."""
    asked = _Asked(service or None, client, tenant, data_class, model, affinity, host)
    tell(_ask(edge_url, ask.token, asked), as_json=ask.as_json, full=False)


@asks(app)
def explain(
    ask: Command,
    service: _Service = "",
    *,
    host: _Host = None,
    client: _ClientAddress = None,
    tenant: _Tenant = None,
    data_class: _DataClass = None,
    model: _Model = None,
    affinity: _Affinity = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Decide by a draft: control answers, with health, plan and latency as they are."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Decide by the law of that time (2020-06-01T00:00:00Z): control answers."),
    ] = None,
    family: Annotated[
        AddressFamily | None,
        typer.Option(
            help="Ask over DNS, for A (ipv4) or AAAA (ipv6) of a host name of the service: control answers."
        ),
    ] = None,
    edge_url: options.EdgeUrl = options.EDGE,
) -> None:
    """The same with every candidate, exclusion and rule. Exit code 1 if the request is refused.

    By a draft, at another time or over DNS, a client that is not given is one that nobody can locate.
    """
    asked = _Asked(service or None, client, tenant, data_class, model, affinity, host, 1, family)
    if policy is None and at is None and family is None:
        try:
            decision = _ask(edge_url, ask.token, asked)
        except CommandError as error:
            raise _hinted(error, ask, asked) from error
    else:
        decision = _ask_control(ask, asked, policy, at)
    tell(decision, as_json=ask.as_json, full=True, family=family)


_LISTS = {
    "unknown_service": ("service", "list_services"),
    "unknown_tenant": ("tenant", "list_tenants"),
    "unknown_data_class": ("data_class", "list_data_classes"),
}
"""What an edge says that the policy does not know → which parameter it is, and the call that lists those known."""
_PATIENCE = 2.0
"""Seconds that control may take to help with a name."""


def _hinted(error: CommandError, ask: Command, asked: _Asked) -> CommandError:
    """The same error, with the name that may be meant where control says what names there are.

    Not the edge: it tells strangers no names, and compares none for them.
    """
    from gtm.cli.common import client
    from gtm.core.model.references import meant

    parameter, listed = _LISTS.get(error.said, ("", ""))
    name = asdict(asked).get(parameter)
    if not name:
        return error
    known: list[str] = []
    with suppress(CommandError):  # no token, or no control to be reached: what the edge said stands
        control = client.control(ask.control_url, ask.token, timeout=_PATIENCE)
        known = [item.name for item in getattr(control, listed)()]
    return CommandError(f"{error}{meant(name, known)}", error.code, error.problems, error.said)


def _ask_control(ask: Command, asked: _Asked, draft: Path | None, at: str | None) -> Any:
    """The decision by a draft, at another time, or over DNS."""
    from gtm.cli.common.policy_folder import read_document

    if asked.service is None:
        text = (
            "edges know a service by --host alone: with --policy, --at or --family, give its name beside it"
        )
        raise CommandError(text)
    body: Any = {
        name: value for name, value in asdict(asked).items() if name != "explain" and value is not None
    }
    if asked.family is not None:
        body["over"] = "dns"
    if at is not None:
        body["at"] = at
    if draft is not None:
        body["policy"] = read_document(draft)
    return ask.api.explain_route(body)


def _ask(url: str, token: str | None, asked: _Asked) -> Any:
    """The decision. A refusal is an answer; any other 503 is none."""
    from gtm.cli.common.client import TIMEOUT, EdgeClient
    from gtm.client import edge_calls

    call = edge_calls.route(**{name: value for name, value in asdict(asked).items() if name != "family"})
    body: Any = EdgeClient(url, token, TIMEOUT).send(replace(call, accept=frozenset({421, 451, 503}))).value
    if "outcome" not in body:
        said = body.get("detail", "no reason given")
        raise CommandError(f"the edge cannot answer: {said}", Exit.UNREACHABLE)
    return body


def tell(decision: JsonObject, *, as_json: bool, full: bool, family: AddressFamily | None = None) -> None:
    """Show what control or an edge says of one request.

    Args:
        decision: as it was answered.
        as_json: as it came, for programs.
        full: with all that led to it.
        family: of the addresses that DNS was asked for; None: it was not asked.
    """
    if as_json:
        output.print_json(decision)
    else:
        _facts(decision, family)
        if full:
            _considered(decision)
        else:
            for sentence in decision.reasons:
                output.say(f"  {sentence}")
    if decision.outcome != "served":
        raise typer.Exit(Exit.NO)


def _facts(decision: JsonObject, family: AddressFamily | None) -> None:
    client = decision.client
    found = [client.country or "unknown place"]
    if client.source != "none":
        found.append(f"{client.source} {client.network or ''}".rstrip())
    endpoint = decision.endpoint
    asked = decision.get("request", {})
    if asked.get("location", {}).get("anonymous"):
        found.append("anonymising network")
    refused = decision.outcome != "served"
    by = "draft" if decision.get("draft") else f"revision {decision.revision}"
    output.facts(
        (
            ("service", decision.service),
            ("client", f"{client.ip or 'unknown'} ({', '.join(found)})"),
            ("tenant", asked.get("tenant")),
            ("data class", asked.get("data_class")),
            ("model", asked.get("model")),
            ("affinity", asked.get("affinity")),
            (
                "refused" if refused else "region",
                output.text(_answer(decision), "red" if refused else "green"),
            ),
            ("endpoint", endpoint and endpoint.url),
            ("addresses", endpoint and " ".join((*endpoint.ipv4, *endpoint.ipv6, endpoint.cname or ""))),
            *_records(decision, family),
            ("ttl", f"{decision.ttl} s"),
            ("policy", f"{by}, epoch {decision.epoch}"),
        )
    )


def _records(decision: JsonObject, family: AddressFamily | None) -> list[tuple[str, str]]:
    """What DNS answers to whoever asks for addresses of a family; None: nobody asked."""
    if family is None:
        return []
    told = decision.dns
    [reply] = [one for one in told.replies if one.type == family.rrtype]
    found = " ".join(record.data for record in reply.records)
    return [("asked", f"{family.rrtype} of {told.name}"), ("answer", found or f"empty ({reply.rcode})")]


def _answer(decision: JsonObject) -> str:
    if decision.outcome == "served":
        return f"{output.plain(decision.region)} ({output.plain(decision.reason)})"
    return output.plain(decision.get("detail") or decision.reason)


def _considered(decision: JsonObject) -> None:
    """Every candidate, and the rules that matched."""
    output.say("")
    columns: dict[str, output.Column] = {
        "rank": "rank",
        "region": "region",
        "estimate": lambda one: "" if one.estimate_ms is None else f"{one.estimate_ms:.0f} ms",
        "distance": lambda one: "" if one.distance_km is None else f"{one.distance_km:.0f} km",
        "share": lambda one: f"{one.share:.0%}",
        "excluded by": _exclusion,
        "why": lambda one: str(one.why).removeprefix(f"{one.region}: "),
    }
    output.records(decision.candidates, columns, empty="the service has no regions")
    rules: dict[str, output.Column] = {
        "rule": "name",
        "mode": "mode",
        "because": lambda one: ", ".join(one.because),
        "legal basis": "legal_basis",
    }
    output.say("")
    output.records(decision.rules, rules, empty="no residency rule matches")


def _exclusion(item: JsonObject) -> str:
    if item.excluded is None:
        return ""
    rules = f" ({', '.join(item.rules)})" if item.rules else ""
    return f"{item.excluded}{rules}"
