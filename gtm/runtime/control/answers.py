"""What an edge would send in answer to a question, for explanations: made at control by the code that edges answer with.

Edges know some things that control does not: `unknown` says which of them could make their answer another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype

from gtm.control.policy.questions import AskedOver
from gtm.control.policy.simulation import DRAW
from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Option
from gtm.core.decision.router import Router
from gtm.core.model.policy import EdgeScope
from gtm.core.model.requests import Location
from gtm.core.model.services import Handoff, HttpAnswer
from gtm.dns.answer.answerer import Answerer
from gtm.geoip.address import parse_address
from gtm.geoip.client import ClientAddress
from gtm.http.answers.routes import RedirectRoute, ResolvedRequest
from gtm.telemetry import Counts

_TYPES = ("A", "AAAA", "HTTPS")
"""What browsers ask for before they connect."""
_RESOLVER = "192.0.2.53"
"""Whence questions come that state no subnet; it is never looked up."""


def edge_answers(routing: Routing, option: Option, asked: AskedOver) -> dict[str, Any]:
    """The DNS answers or the redirect of one request, and what control cannot know of them (see `ExplanationView`)."""
    unknown = list(_unknown(routing, option, asked))
    if asked.over == "dns" and asked.host is not None:
        return {"dns": _dns(routing, asked, asked.host), "unknown": unknown}
    return {"redirect": _redirect(routing, option, asked), "unknown": unknown}


def _dns(routing: Routing, asked: AskedOver, name: str) -> dict[str, Any]:
    location: Location = routing.request.location
    answerer = Answerer(Router(routing.view), lambda _: location, Counts())
    replies = [_reply(answerer, name, rdtype, asked.client) for rdtype in _TYPES]
    return {"name": name, "client_subnet": asked.client, "replies": replies}


def _reply(answerer: Answerer, name: str, rdtype: str, subnet: str | None) -> dict[str, Any]:
    """One answer as it is on the wire, and read again."""
    options: list[dns.edns.Option] = []
    if subnet is not None:
        address, _, length = subnet.partition("/")
        options.append(dns.edns.ECSOption(address, int(length)))
    query = dns.message.make_query(name, rdtype, use_edns=0, options=options)
    query.flags = dns.flags.Flag(0)
    packet = answerer.answer_fully(query.to_wire(), _RESOLVER, tcp=True, draw=DRAW)
    assert packet is not None  # noqa: S101 - a question that we wrote is answered
    reply = dns.message.from_wire(packet)
    scope, error = None, None
    for one in reply.options:
        if isinstance(one, dns.edns.ECSOption):
            scope = one.scopelen
        elif isinstance(one, dns.edns.EDEOption):
            error = {"code": int(one.code), "text": one.text or ""}
    return {
        "type": rdtype,
        "rcode": dns.rcode.to_text(reply.rcode()),
        "records": [
            {
                "name": rrset.name.to_text(),
                "ttl": rrset.ttl,
                "type": dns.rdatatype.to_text(rrset.rdtype),
                "data": rdata.to_text(),
            }
            for rrset in reply.answer
            for rdata in rrset
        ],
        "scope": scope,
        "error": error,
    }


def _redirect(routing: Routing, option: Option, asked: AskedOver) -> dict[str, Any]:
    client = (
        None if asked.client is None or "/" in asked.client else ClientAddress.of(parse_address(asked.client))
    )
    path = "/" if asked.host is not None else f"/r/{routing.request.service}/"
    resolved = ResolvedRequest(Router(routing.view), routing, client, path, full=False, afford=None)
    response = RedirectRoute(resolved).ended(option, b"/", b"")
    return {
        "path": path,
        "host": asked.host,
        "status": response.head.status,
        "headers": [
            {"name": name.decode("latin-1"), "value": value.decode("latin-1")}
            for name, value in response.head.headers
        ],
        "body": response.body.decode(),
    }


def _unknown(routing: Routing, option: Option, asked: AskedOver) -> Iterator[str]:
    """What edges know and control does not, as far as it could change this answer: sentences."""
    snapshot, service = routing.view.snapshot, routing.ranking.group.service.service
    matched = {rule.name for rule in routing.explained(option).rules}
    binding = sorted(
        {
            one.rule.name
            for one in routing.view.rules[routing.request.service]
            if one.enforced and one.rule.edges is EdgeScope.IN_FENCE and one.rule.name in matched
        }
    )
    if binding:
        refuses = "REFUSED" if asked.over == "dns" else "421"
        yield f"Which edge is asked: one that stands outside of {', '.join(binding)} answers {refuses}, and names others."
    if option.quotas:
        yield "Whether the edge has a token left of the quotas that this answer counts against; without one, the home region serves."
    if asked.over == "dns":
        if any(zone.name == service.zone and zone.dnssec for zone in snapshot.policy.zones):
            yield "The signatures: edges add them for those who ask for DNSSEC."
        return
    yield "How many slots are free this instant: where the region chosen has none, the edge may send the request to another one inside the fence."
    if service.answer is HttpAnswer.CARRY:
        yield "Where the edge stands: one inside the fence of every rule that concerns the request carries it there, and redirects nobody."
    if service.handoff is Handoff.SIGN:
        yield "The handoff: the edge signs one for each redirect, and adds it to the address."
