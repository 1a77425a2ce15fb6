"""Answers to kinds of request, remembered for as long as a Router lives.

Law: what is remembered is the choice, never the pick. Each request is picked for anew, by its affinity or a fresh
draw; only what a pick would say word for word the same is kept as finished bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from gtm.core.decision.options import Afford, Option
from gtm.core.decision.router import Router
from gtm.core.decision.view import View
from gtm.core.handoff.priority import no_higher
from gtm.core.memory import Memory
from gtm.core.model.names import host_name
from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.requests import UNKNOWN_LOCATION, ContradictionError, Location, Request, agreed
from gtm.core.quota.earned import Earn
from gtm.geoip.client import Client
from gtm.handoff import carried
from gtm.http.answers.corrections import Corrections
from gtm.http.answers.handoffs import Handoffs
from gtm.http.answers.prepared import Prepared
from gtm.http.answers.resolved import ResolvedRequest
from gtm.http.problems import Head, ProblemError, Response, head_of, json_response
from gtm.http.requests.lookup import Lookup

Locate = Callable[[bytes], Location]
"""Where an address is, given in network order."""

HOSTS = 1 << 20
"""Bytes of what is remembered of Host headers."""
_OfHost = tuple[str, str | None] | None
_OPTIONS = 256
"""Ways to end that are remembered of one kind of request: more than there are while regions' free slots stay as they are."""
_URL_SAFE = "!#$%&'()*+,/:;=?@[]~"
_MARKS = 4
"""How many times as many kinds are marked as asked once as are remembered."""


class LookupRoute:
    """The responses to look-ups that are alike, and not to be explained in full."""

    __slots__ = ("_made", "_resolved", "_responses")

    def __init__(self, resolved: ResolvedRequest, prepared: Prepared) -> None:
        self._resolved = resolved
        self._made = partial(prepared.response, resolved)
        self._responses: Memory[Option, Response] = Memory(self._made, _OPTIONS)

    def respond(self) -> Response:
        """The response to one look-up."""
        option = self._resolved.pick()
        if self._resolved.handoffs is None:
            return self._responses[option]
        return self._made(option)  # a handoff holds from when it is made


class RedirectRoute:
    """Where requests that are alike are sent."""

    __slots__ = ("_resolved", "_targets")

    def __init__(self, resolved: ResolvedRequest) -> None:
        self._resolved = resolved
        self._targets: Memory[Option, _Target | _Signed | Response] = Memory(self._target, _OPTIONS)

    def respond(self, rest: bytes, query: bytes) -> Response:
        """The redirect of one request, or its refusal.

        Args:
            rest: the path as it was sent, from its leading slash on; printable ASCII.
            query: likewise, without the question mark.
        """
        return self.ended(self._resolved.pick(), rest, query)

    def ended(self, option: Option, rest: bytes, query: bytes) -> Response:
        """As `respond`, for a request that ends in a given way."""
        target = self._targets[option]
        return target if isinstance(target, Response) else target.response(rest, query)

    def _target(self, option: Option) -> _Target | _Signed | Response:
        count = self._resolved.counted_as(option, "redirect")
        endpoint = self._resolved.routing.endpoint(option)
        if endpoint is None:
            status, document, more = self._resolved.rendered(option)
            return json_response(status, document, more, count)
        headers = (
            # `private`: nobody else's cache may keep it. `no-store`: nor may the client's own, since the next answer
            # may be another by then, and a kept one would lead out of a fence that has changed.
            (b"cache-control", b"private, no-store"),
            (b"x-gtm-region", quote(option.region or "").encode()),
            (b"x-gtm-reason", option.reason.value.encode()),
            (b"x-gtm-revision", str(self._resolved.routing.view.snapshot.revision).encode()),
        )
        prefix = quote(endpoint.url.rstrip("/"), safe=_URL_SAFE).encode()
        target = _Target(prefix, head_of(307, headers), count)
        return target if self._resolved.handoffs is None else _Signed(target, self._resolved, option)


@dataclass(frozen=True, slots=True)
class _Target:
    """A chosen endpoint's URL without a trailing slash, and what every redirect there carries."""

    prefix: bytes
    head: Head
    count: str

    def response(self, rest: bytes, query: bytes) -> Response:
        location = self.prefix + rest + (b"?" + query if query else b"")
        # Printable, as the prefix and both parts are: nothing ends the line early.
        lines = b"location: %b\r\n%b" % (location, self.head.lines)
        return Response(
            Head(307, ((b"location", location), *self.head.headers), lines, False), b"", self.count
        )


@dataclass(frozen=True, slots=True)
class _Signed:
    """A target, where each redirect there carries a handoff of its own."""

    target: _Target
    resolved: ResolvedRequest
    option: Option

    def response(self, rest: bytes, query: bytes) -> Response:
        token = self.resolved.handoff(self.option, once=True)
        query = carried.without(query)
        return self.target.response(rest, query if token is None else carried.added(query, token))


@dataclass(eq=False, repr=False)
class Routes:
    """What is remembered for one Router, bounded so that hostile traffic cannot grow it.

    Args:
        router: to decide with; None before the first policy.
        locate: where an address is.
        afford: asked before a spillover quota is used; None: nothing is asked.
        limit: how many kinds are remembered in each table; past it the table starts anew.
        handoffs: signs for the services that ask for it; None: nothing is signed.
        corrections: by free slots; None: there are none.
        earn: keeps what requests earn of quotas that are shares; None: nothing is kept.
        draw: uniform in [0, 1), anew for each request.
    """

    router: Router | None
    locate: Locate
    afford: Afford | None = None
    limit: InitVar[int] = 8192
    _: KW_ONLY
    handoffs: Handoffs | None = None
    corrections: InitVar[Corrections | None] = None
    earn: Earn | None = None
    draw: Callable[[], float] = random.random

    def __post_init__(self, limit: int, corrections: Corrections | None) -> None:
        self.lookups: dict[Any, LookupRoute] = {}
        self.redirects: dict[Any, RedirectRoute] = {}
        self.marks: set[int] = set()
        """Of look-ups that were made once."""
        self._corrections = (
            None if self.router is None or corrections is None else corrections.under(self.router)
        )
        self._limit = limit if self.router is None else min(limit, self.router.ranker.limit)
        self._services: Memory[bytes, _OfHost] = Memory(self._of_host, HOSTS, _host_size)
        self.prepared = Prepared(self.router)

    def resolve(self, lookup: Lookup, client: Client | None, instance: str) -> ResolvedRequest:
        """Decide for all requests that are alike but for the draw.

        Args:
            lookup: what is asked; its `client_ip` is not looked at.
            client: whom it is about, None if unknown.
            instance: names the request in problem documents.

        Raises:
            ProblemError: there is no policy yet, or it does not know the service, host name, tenant, data class or model;
                or the request states something else than the host name that it came by.
        """
        if self.router is None:
            raise ProblemError(
                "not_ready", "no policy has been loaded yet; try again", ((b"retry-after", b"1"),)
            )
        packed = b"" if client is None else client.packed
        location = self.locate(packed) if packed else UNKNOWN_LOCATION
        router = self.router
        service, tenant, data_class = _asked(router.view, lookup)
        priority = lookup.priority
        if priority is not None:
            priority = no_higher(priority, router.view.snapshot.services.get(service))
        said = lookup.model, lookup.affinity, priority, None  # nobody asks for a family over HTTP
        # As `Request(…)` and `ResolvedRequest(…)`, in half of the time.
        request: Request = tuple.__new__(Request, (service, location, tenant, data_class, *said))
        try:
            routing = router.routing(request, packed)
        except UnknownNameError as error:
            raise ProblemError.unknown_name(error) from error
        handoffs = self.handoffs
        if handoffs is not None and not handoffs.signs(routing):
            handoffs = None
        known = router, routing, client, instance, lookup.explain
        made = (*known, self.afford, handoffs, self._corrections, self.earn, self.draw)
        resolved: ResolvedRequest = tuple.__new__(ResolvedRequest, made)
        return resolved

    def service_of(self, host: bytes) -> tuple[str, str | None] | None:
        """The service whose host name a Host header gives, and that name if it states something; None if there is none."""
        return self._services[host]

    def _of_host(self, host: bytes) -> _OfHost:
        if self.router is None:
            return None
        snapshot = self.router.view.snapshot
        named = snapshot.host_of(host_name(host))
        if named is None:
            return None
        return snapshot.hostnames[named.name], named.name if named.name in snapshot.stated else None

    def lookup(self, resolved: ResolvedRequest) -> Response:
        """The response to a look-up that is not remembered."""
        if resolved.full:
            option, status, document, headers = resolved.answered()
            return json_response(status, document, headers, resolved.counted_as(option, "lookup"))
        return self.prepared.response(resolved, resolved.pick())

    def again(self, key: Hashable) -> bool:
        """Whether the same was asked for before, as far as that is known; from now on it was.

        Most clients ask a worker once. What is remembered of them would be in the way of others, and of the collector.
        """
        mark = hash(key)
        if mark in self.marks:
            return True
        if len(self.marks) >= _MARKS * self._limit:
            self.marks = set()
        self.marks.add(mark)
        return False

    def remember(self, table: dict[Any, Any], key: Any, route: LookupRoute | RedirectRoute) -> None:
        """Keep a route in one of this object's tables."""
        if len(table) >= self._limit:
            table.clear()
        table[key] = route


def _host_size(host: bytes, _: _OfHost) -> int:
    return 200 + len(host)


def _asked(view: View, lookup: Lookup) -> tuple[str, str | None, str | None]:
    """The service, tenant and data class that a look-up is about, by what it states and by its host name.

    Raises:
        ProblemError: the host name is none of a service, or of another one, or states something else.
    """
    if lookup.host is None:
        return lookup.service, lookup.tenant, lookup.data_class
    snapshot = view.snapshot
    host = snapshot.host_of(lookup.host.lower().removesuffix("."))
    if host is None:
        raise ProblemError("unknown_service", f"no service has the host name `{lookup.host}`")
    service = snapshot.hostnames[host.name]
    if lookup.service not in ("", service):
        text = f"`{lookup.host}` is a host name of service `{service}`, not of `{lookup.service}`: leave one of them out"
        raise ProblemError("contradiction", text)
    try:
        return service, *agreed(host, lookup.tenant, lookup.data_class)
    except ContradictionError as error:
        raise ProblemError("contradiction", str(error)) from error
