"""The edge's HTTP tier as a plain ASGI application: look-ups, redirects, measured round trips, health and metrics.

Laws:
  1. A request whose Host is a service's host name is redirected, whatever its path. gtm's own routes live on all other
     hosts, so that no path of a service is taken from it.
  2. A redirect leads to an endpoint of the policy, followed by the path and query as they were sent, byte for byte. Where the
     service asks for it, a handoff ends the query, and takes the place of any other.
     No part of a request can change the host it leads to, or add a header.
  3. Whatever a request holds, it gets an answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, InitVar, dataclass
from math import inf
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from gtm.core.decision.options import Afford
from gtm.core.memory import Memory
from gtm.core.model.refusals import instance_of
from gtm.core.quota.earned import Earn
from gtm.feed.current import CurrentView
from gtm.geoip.client import ClientAddress
from gtm.handoff import jwks
from gtm.http.answers import authorize
from gtm.http.answers.browsers import is_preflight, preflight, readable
from gtm.http.answers.corrections import Corrections
from gtm.http.answers.routes import (
    CarriedRequest,
    EdgeHandoffs,
    Locate,
    LookupRoute,
    RedirectRoute,
    ResolvedRequest,
    Routes,
)
from gtm.http.description.document import DESCRIPTION
from gtm.http.problems import (
    NO_STORE,
    ProblemError,
    Response,
    head_of,
    json_response,
    response_of,
)
from gtm.http.requests.callers import Callers, Grant, check_subject
from gtm.http.requests.incoming import AUTHORIZE, OTHER, REDIRECT, SAID, Incoming, Page, Receive, Scope, Send
from gtm.http.requests.lookup import (
    MAX_BATCH_BYTES,
    Lookup,
    Queries,
    check_value,
    parse_batch,
    parse_item,
    read_priority,
)
from gtm.http.samples.intake import Intake, SamplePages
from gtm.settings import LOOPBACK, Network
from gtm.telemetry import Counts

logger = logging.getLogger(__name__)

MAX_URL = 16 * 1024
"""Longest path and query accepted, in bytes together (RFC 9110 §4.1 asks for at least 8,000)."""

_REMEMBERED = 1024
"""Bytes of a query and of proxies' headers up to which what follows from them is remembered: memory is bounded by the number
of answers, and heads may have 32 KiB."""
_ADMITTED = 4096
"""Ways to end that are remembered of all that proxies ask."""
_BURST = 25
"""Look-ups of a batch answered in one go, before other requests get their turn."""

_PROBES = ("GET", "HEAD", "OPTIONS")
"""How monitors ask: HAProxy by OPTIONS unless it is told otherwise."""
_OF_SERVICES = (REDIRECT, OTHER)
"""Pages in whose place a service's own would be: clients of model APIs read what is wrong."""
_PRINTABLE = re.compile(rb"[\x21-\x7e]*")
_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """How an edge's HTTP tier behaves.

    `open_lookups` lets anybody ask about any client. Once control was not heard for `token_max_age` seconds, no token is
    accepted. `trusted_proxies` are the networks whose X-Forwarded-For and
    Forwarded headers count. `beacons`: browsers may post round trips. Clients in `metrics_allow` read the metrics without
    a token. `near_lookups` lets this machine ask about any client, where it alone can reach the edge. `names` are those that
    this machine is known by. `carry`: requests of services that ask for it are carried, where the law lets this edge.
    """

    open_lookups: bool = False
    token_max_age: float = inf
    trusted_proxies: tuple[Network, ...] = ()
    beacons: bool = True
    metrics_allow: tuple[Network, ...] = LOOPBACK
    near_lookups: bool = False
    names: frozenset[str] = frozenset()
    carry: bool = True


KEY_AWAITED = 10.0
"""Seconds from its start for which an edge that is to carry requests is not ready while balancers have not heard of its key for handoffs. Control publishes the key within two,
and a second later balancers have heard of it. Without control the edge is ready after these ten seconds, and redirects."""


@dataclass(eq=False, repr=False)
class EdgeApp:
    """The application.

    Args:
        current: where the current Router is.
        locate: where an address is.
        options: see `EdgeOptions`.
        counts: where requests and decisions are counted.
        metrics: the whole edge's metrics as Prometheus text.
        silent: the kinds of worker of which none listens, for `/readyz` (a process that is asked listens).
        afford: asked before a spillover quota is used; None: nothing is asked.
        earn: keeps what requests earn of quotas that are shares; None: nothing is kept.
        alone: what `/readyz` says besides of a process that answers without its agent.
        clock: POSIX seconds, for the end of tokens.
        handoffs: signs for the services that ask for it; None: nothing is signed.
        corrections: by free slots; None: there are none.
        draw: uniform in [0, 1), anew for each request.
    """

    current: InitVar[CurrentView]
    locate: Locate
    options: InitVar[EdgeOptions]
    counts: Counts
    metrics: Callable[[], str]
    _: KW_ONLY
    silent: Callable[[], tuple[str, ...]] = tuple
    afford: Afford | None = None
    earn: Earn | None = None
    alone: Callable[[], dict[str, object]] = dict
    clock: InitVar[Callable[[], float]] = time.time
    handoffs: EdgeHandoffs | None = None
    corrections: Corrections | None = None
    draw: Callable[[], float] = random.random

    def __post_init__(self, current: CurrentView, options: EdgeOptions, clock: Callable[[], float]) -> None:
        self._current_view = current
        self._callers = Callers(
            current,
            trusted_proxies=options.trusted_proxies,
            metrics_allow=options.metrics_allow,
            token_max_age=options.token_max_age,
            open_lookups=options.open_lookups,
            near_lookups=options.near_lookups,
            names=options.names,
            clock=clock,
        )
        self.trusts = self._callers.trusts
        """Whether a peer is a proxy of the operator's."""
        self._may_carry = options.carry
        self._key_awaited_until = current.boot() + KEY_AWAITED
        self._questions = Memory(authorize.read_question, authorize.QUESTIONS, authorize.question_size)
        self._admitted = Memory(authorize.admitted, _ADMITTED)
        self._queries = Queries()
        self._routes = Routes(None, self.locate)
        self.intake = Intake(lambda: current.snapshot, self.locate, clock, lambda: current.table.doubts)
        """Where posted samples gather; whoever runs the application takes them from there."""
        self._pages = {
            "/v1/route": Page("lookup", self._lookup),
            "/v1/route:batch": Page("batch", take=self._take_batch, methods=("POST",)),
            "/healthz": Page("healthz", self._healthz, methods=_PROBES),
            "/readyz": Page("readyz", self._readyz, methods=_PROBES),
            "/metrics": Page("metrics", self._metrics_page),
            "/openapi.json": Page("openapi", lambda _incoming, _routes: DESCRIPTION),
        }
        self._pages |= SamplePages(lambda: self.intake, self._callers, self.counts).pages(
            open_to_all=options.beacons
        )
        if self.handoffs is not None:
            self._pages[jwks.PATH] = self.handoffs.page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI 3 has it."""
        if scope["type"] != "http":
            await _other_protocol(scope, receive, send)
            return
        incoming = Incoming.of_scope(scope)
        response = self.answer(incoming)
        if response is None and incoming.page.take is not None:
            try:
                response = await incoming.page.take(incoming, receive, send)
            except Exception as error:  # noqa: BLE001  # logged there
                response = self._failed(incoming, error)
            if response is not None:
                self._count(incoming, response)
        if response is not None:
            await send(response.start)
            await send({"type": "http.response.body", "body": response.body})

    def answer(self, incoming: Incoming) -> Response | None:
        """The response to a request, by its head; None where the body has to be read first. Whatever fails is answered."""
        try:
            response = self._respond(incoming, self.routes())
        except Exception as error:  # noqa: BLE001  # logged there
            response = self._failed(incoming, error)
        if response is not None:
            if incoming.cors is not None:
                response = readable(response, incoming.cors, incoming.headers[b"origin"])
            self._count(incoming, response)
        return response

    def answer_head(
        self,
        method: str,
        target: bytes,
        lines: list[tuple[bytes, bytes]],
        peer: str | None,
        version: str,
    ) -> Response | None:
        """The same for a request that is all head: see `Incoming` for what the arguments are."""
        return self.answer(Incoming(method, target, lines, peer, version))

    def _failed(self, incoming: Incoming, error: Exception) -> Response:
        """What is answered where a request ends in an error, which is logged if it is ours."""
        if isinstance(error, ProblemError):
            instance, page = instance_of(incoming.raw_path), incoming.page
            of_service = page in _OF_SERVICES
            return error.response(
                instance, page.error_headers, of_service=of_service, accept=incoming.accept()
            )
        logger.error("could not answer %s %r", incoming.method, incoming.raw_path[:256], exc_info=error)
        if incoming.started:
            raise error  # the server cuts the connection, so that nobody takes half a batch for a whole one
        bug = ProblemError("internal_error", "this is a bug in gtm")
        return bug.response("/", of_service=incoming.page in _OF_SERVICES, accept=incoming.accept())

    def routes(self) -> Routes:
        """What is remembered for the Router in force."""
        current = self._current_view
        if current.deadline < inf and current.boot() >= current.deadline:
            current.tick()  # this process slept across a boundary
        router = current.router
        if self._routes.router is not router:
            self._routes = Routes(
                router,
                self.locate,
                self.afford,
                handoffs=self.handoffs,
                corrections=self.corrections,
                earn=self.earn,
                draw=self.draw,
            )
        return self._routes

    def _count_request(self, page: Page, status: int) -> None:
        self.counts.add(f"gtm_http_requests_total\t{page.label}\t{status}")

    def _count(self, incoming: Incoming, response: Response) -> None:
        self._count_request(incoming.page, response.head.status)
        if response.counted_as is not None:
            self.counts.add(response.counted_as)

    def _respond(self, incoming: Incoming, routes: Routes) -> Response | None:
        """The response, or None where the body has to be read first."""
        wrong = incoming.read_headers()
        headers = incoming.headers
        if authorize.is_asked(incoming.path) and (
            authorize.FIELD in headers or routes.service_of(headers.get(b"host", b"")) is None
        ):
            return self._authorize(incoming, routes, wrong)
        if wrong is not None:
            raise wrong
        found = _of_service(incoming, routes)
        if found is not None:
            return self._redirect(incoming, routes, *found)
        page = self._pages.get(incoming.path)
        if page is not None:
            incoming.page = page
            if page.preflight is not None and incoming.method == "OPTIONS":
                return page.preflight
            incoming.require(page.methods)
            return None if page.answer is None else page.answer(incoming, routes)
        host = headers.get(b"host", b"")[:255].decode("latin-1")
        raise ProblemError("not_found", f"no service has the host name `{host}`, and gtm has no such path")

    def _lookup(self, incoming: Incoming, routes: Routes) -> Response:
        query = incoming.query
        grant = self._callers.grant(incoming)
        forwarded = self._callers.forwarded(incoming)
        # Whatever a token that is not enough is wrong by, the answer about the caller is the same.
        granted = grant is Grant.GRANTED
        key = (query, granted, incoming.peer, forwarded)
        route = routes.lookups.get(key)
        page_asks = b"origin" in incoming.headers
        if route is None:
            if len(query) > MAX_URL:
                raise ProblemError("uri_too_long", f"the query is longer than {MAX_URL} bytes")
            lookup = self._queries.read(query)
            if page_asks:
                known = routes.service(lookup.service)
                incoming.cors = None if known is None else known.cors  # what is wrong can be read, too
            client = lookup.client_ip
            if client is None or not granted:
                client = _subject(lookup, self._callers.client(incoming.peer, forwarded), grant)
            resolved = routes.resolve(lookup, client, "/v1/route")
            if page_asks:
                incoming.cors = resolved.cors
            if lookup.explain or not routes.again(key) or not _short(query, *forwarded):
                return routes.lookup(resolved)
            route = LookupRoute(resolved, routes.prepared)
            routes.remember(routes.lookups, key, route)
        elif page_asks:
            incoming.cors = route.cors
        return route.respond()

    def _redirect(
        self, incoming: Incoming, routes: Routes, service: str, host: str | None, rest: bytes
    ) -> Response:
        """Send a request on; `host` is the host name that it came by, if that states something."""
        found = self._route(incoming, routes, service, host, rest)
        return found if isinstance(found, Response) else found.respond(rest, incoming.query, incoming.accept)

    def _authorize(self, incoming: Incoming, routes: Routes, wrong: ProblemError | None) -> Response:
        """Answer a proxy that asks whether a request may go on, and where; `wrong` is what is wrong with its headers, which may be a client's."""
        incoming.page = AUTHORIZE
        deny = authorize.Denial()
        try:
            if not self.trusts(incoming.peer):
                raise authorize.untrusted()
            asked = self._questions[authorize.question_in(incoming.path, incoming.query, incoming.headers)]
            deny = asked.deny
            if wrong is not None:
                raise wrong
            service, host = self._service_of(asked.service, incoming, routes)
            key = (deny, *self._asked(incoming, service, host))
            route = routes.authorized.get(key)
            if route is None:
                resolved = self._resolved(routes, incoming, service, host)
                route = authorize.AuthorizeRoute(resolved, deny, self.handoffs, self._admitted)
                if _short(*key[-1]):
                    routes.remember(routes.authorized, key, route)
            answer: Response = route.respond()
        except ProblemError as error:
            answer = authorize.refused(error.document(instance_of(incoming.raw_path)), deny, error.headers)
        return authorize.closing(answer) if incoming.has_body else answer

    @staticmethod
    def _service_of(asked: str | None, incoming: Incoming, routes: Routes) -> tuple[str, str | None]:
        """The service that a proxy asks about, and the host name that the request came by if that states something.

        Raises:
            ProblemError: nothing says it.
        """
        if asked is not None:
            return asked, None
        headers = incoming.headers
        name = headers.get(b"x-forwarded-host") or headers.get(b"host", b"")
        found = routes.service_of(name)
        if found is None:
            shown = name[:255].decode("latin-1")
            text = f"no service has the host name `{shown}`: ask with `service=NAME`, or hand the client's Host on"
            raise ProblemError("unknown_service", text)
        return found

    def carries(self, target: bytes, lines: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request is for a service whose requests are carried: by its path and query, and its header lines."""
        routes = self.routes()
        carried = routes.carried
        if not carried:
            return False
        host = next((value for name, value in lines if name == b"host"), b"")
        path = target.partition(b"?")[0]
        if authorize.is_asked(path.decode("latin-1")) and any(name == authorize.FIELD for name, _ in lines):
            return False  # a proxy asks
        found = _service_at(host, path, routes)
        return found is not None and found[0] in carried

    def carried(self, incoming: Incoming) -> tuple[Response | CarriedRequest, bytes]:
        """How a request ends that `carries` was asked about, and the path of its service. Its headers have been read."""
        incoming.page = REDIRECT
        rest = b"/"
        try:
            routes = self.routes()
            # The policy may have it no more.
            name, host, rest = _of_service(incoming, routes) or ("", None, b"/")
            check_segments(rest)
            route = self._route(incoming, routes, name, host, rest)
            ended: Response | CarriedRequest
            if isinstance(route, Response):
                ended = route
            elif (why := self._why_not(route)) is None:
                ended = route.carried(rest, incoming.query, incoming.accept)
            else:
                ended = route.respond(rest, incoming.query, incoming.accept)
                if ended.head.status == 307:
                    head = head_of(307, (*ended.head.headers, (b"x-gtm-not-carried", why)))
                    ended = Response(head, ended.body, ended.counted_as)
        except Exception as error:  # noqa: BLE001  # logged there
            ended = self._failed(incoming, error)
        if isinstance(ended, Response):
            if incoming.cors is not None:
                ended = readable(ended, incoming.cors, incoming.headers[b"origin"])
            self._count(incoming, ended)
        return ended, rest

    def _why_not(self, route: RedirectRoute) -> bytes | None:
        """Why requests that ask to be carried are not, in a word; None: they are."""
        if not self._may_carry:
            return b"edge_setting"
        if not route.is_carried:
            return b"edge_outside"
        if self.handoffs is None or not self.handoffs.believed:
            return b"edge_without_key"
        return None

    def is_still_carried(self, incoming: Incoming, carried: CarriedRequest) -> bool:
        """Whether the law of now, too, lets this edge carry a request, and to where it goes."""
        routes = self.routes()
        router, routing = routes.router, carried.resolved.routing
        if router is not None and router.view.basis is routing.view.basis:
            return True
        try:
            found = _of_service(incoming, routes)
            route = None if found is None else self._route(incoming, routes, *found)
        except ProblemError:
            return False
        if not isinstance(route, RedirectRoute) or not route.is_carried or router is None:
            return False
        snapshot = router.view.snapshot
        number = snapshot.region_numbers.get(carried.option.region or "")
        if number is None or not route.allowed >> number & 1:
            return False
        return not carried.url or any(one.url == carried.url for one in snapshot.regions[number].endpoints)

    def _route(
        self, incoming: Incoming, routes: Routes, service: str, host: str | None, rest: bytes
    ) -> RedirectRoute | Response:
        """Where a request of a service is sent; or its answer, if it is a page's preflight."""
        incoming.page = REDIRECT
        query = incoming.query
        if b"origin" in incoming.headers:
            known = routes.service(service)
            own = known is not None and (known.cors is not None or service not in routes.carried)
            if known is not None and own and is_preflight(incoming):
                return preflight(incoming, known.cors)  # else its model servers answer it
            incoming.cors = None if known is None else known.cors
        if len(rest) + len(query) > MAX_URL:
            raise ProblemError("uri_too_long", f"path and query are longer than {MAX_URL} bytes together")
        if not rest.startswith(b"/") or not _PRINTABLE.fullmatch(rest) or not _PRINTABLE.fullmatch(query):
            raise ProblemError(
                "invalid_request",
                "path and query may hold printable ascii characters only; percent-encode the others",
            )
        key = self._asked(incoming, service, host)
        route = routes.redirects.get(key)
        if route is None:
            route = RedirectRoute(self._resolved(routes, incoming, service, host))
            if _short(*key[-1]):
                routes.remember(routes.redirects, key, route)
        return route

    def _asked(self, incoming: Incoming, service: str, host: str | None) -> tuple[Any, ...]:
        """All that a request's decision follows from: service, host, what its fields say, its peer, and last what proxies say of the client."""
        said = tuple(map(incoming.headers.get, SAID))
        return service, host, said, incoming.peer, self._callers.forwarded(incoming)

    def _resolved(
        self, routes: Routes, incoming: Incoming, service: str, host: str | None
    ) -> ResolvedRequest:
        """Decide for a request by its head."""
        said = (incoming.headers.get(name) for name in SAID)
        tenant, data_class, model, affinity, priority = map(_header_text, SAID.values(), said)
        urgency = None if priority is None else read_priority("X-GTM-Priority", priority)
        lookup = Lookup(service, None, tenant, data_class, model, affinity, priority=urgency, host=host)
        caller = self._callers.client(incoming.peer, self._callers.forwarded(incoming))
        return routes.resolve(lookup, caller, instance_of(b"/r/" + service.encode()))

    async def _take_batch(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        """Read a batch, and answer it unless the client went away."""
        incoming.require_json()
        body = await incoming.body(receive, MAX_BATCH_BYTES)
        if body is not None:
            items = parse_batch(body)
            incoming.started = True
            await self._send_batch(items, incoming, send)

    async def _send_batch(self, items: list[Any], incoming: Incoming, send: Send) -> None:
        """Answer a batch piece by piece: explanations of many regions do not fit in memory at once.

        Each piece is answered from the View of its time: whoever reads slowly gets nothing that has ceased to be lawful.
        """
        grant = self._callers.grant(incoming)
        caller = self._callers.client(incoming.peer, self._callers.forwarded(incoming))
        self._count_request(incoming.page, 200)
        headers = ((b"content-type", b"application/json"), NO_STORE)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        piece = b'{"results":['
        routes = self.routes()
        for index, item in enumerate(items):
            document = self._batch_item(item, index, caller, grant, routes)
            piece += (b"," if index else b"") + msgspec.json.encode(document)
            if index % _BURST == _BURST - 1:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = b""
                await asyncio.sleep(0)
                routes = self.routes()
        await send({"type": "http.response.body", "body": piece + b"]}"})

    def _batch_item(
        self, item: Any, index: int, caller: ClientAddress | None, grant: Grant, routes: Routes
    ) -> dict[str, Any]:
        instance = f"/v1/route:batch#/requests/{index}"
        try:
            lookup = parse_item(item)
            resolved = routes.resolve(lookup, _subject(lookup, caller, grant), instance)
        except ProblemError as error:
            return error.document(instance)
        option, _, document, _ = resolved.answered()
        self.counts.add(resolved.counted_as(option, "lookup"))
        return document

    def _healthz(self, _incoming: Incoming, _routes: Routes) -> Response:
        return json_response(200, {"status": "ok"})

    def _readyz(self, _incoming: Incoming, routes: Routes) -> Response:
        if routes.router is None:
            raise ProblemError("not_ready", "no policy has been loaded yet", ((b"retry-after", b"1"),))
        silent = [kind for kind in self.silent() if kind != "http"]
        if silent:
            text = f"no worker listens for {', '.join(silent)}"
            raise ProblemError("not_ready", text, ((b"retry-after", b"1"),))
        keyless = (
            self._may_carry and routes.carried and self.handoffs is not None and not self.handoffs.believed
        )
        if keyless and self._current_view.boot() < self._key_awaited_until:
            text = "balancers have not heard of this edge's key yet: it would redirect what it is to carry, and clients drop API keys on redirects"
            raise ProblemError("not_ready", text, ((b"retry-after", b"1"),))
        view = routes.router.view
        document: dict[str, object] = {
            "status": "ready",
            "revision": view.snapshot.revision,
            "epoch": view.state.epoch,
        }
        if self._current_view.times.unsaved is not None:
            document["unsaved"] = (
                f"the disk refuses revision {view.snapshot.revision}: after a restart without control this edge would "
                "answer by an older one; its log says why"
            )
        return json_response(200, document | self.alone())

    def _metrics_page(self, incoming: Incoming, _routes: Routes) -> Response:
        self._callers.check_scraper(incoming)
        return response_of(200, ((b"content-type", _METRICS_TYPE), NO_STORE), self.metrics().encode())


def _of_service(incoming: Incoming, routes: Routes) -> tuple[str, str | None, bytes] | None:
    """The service that a request is for, the host name that it came by if that states something, and the path at the service; None: it is gtm's own."""
    return _service_at(incoming.headers.get(b"host", b""), incoming.raw_path, routes)


def _service_at(host: bytes, path: bytes, routes: Routes) -> tuple[str, str | None, bytes] | None:
    """The same by Host and path."""
    service = routes.service_of(host)
    if service is not None:
        return (*service, path)
    if not path.startswith(b"/r/"):
        return None
    name, slash, rest = path[3:].partition(b"/")
    return name.decode("latin-1"), None, slash + rest or b"/"


def check_segments(path: bytes) -> None:
    """Let no path leave the one of the region's endpoint, which it is put behind.

    Raises:
        ProblemError: a segment is a dot or two, as some server may read it (RFC 3986 §5.2.4).
    """
    if b"." not in path and b"%" not in path:
        return
    plain = path
    for _ in range(3):  # `%252e` is one to who decodes twice
        plain = unquote_to_bytes(plain)
    segments = plain.replace(b"\\", b"/").split(b"/")
    if any(segment.partition(b";")[0] in (b".", b"..") for segment in segments):
        raise ProblemError(
            "invalid_request",
            "a carried path may have no segments `.` or `..`: ask for the path that they lead to",
        )


def _subject(lookup: Lookup, caller: ClientAddress | None, grant: Grant) -> ClientAddress | None:
    """Whom a look-up is about, if the caller may ask that."""
    if lookup.client_ip is None:
        return caller
    check_subject(grant, lookup.client_ip, caller)
    return lookup.client_ip


def _short(*texts: bytes | None) -> bool:
    """Whether a request with these may be remembered."""
    return sum(len(text) for text in texts if text is not None) <= _REMEMBERED


def _header_text(name: str, value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise ProblemError("invalid_request", f"the {name} header is not valid utf-8") from error
    check_value(name, text)
    return text


async def _other_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    """Take part in a server's start and stop; turn WebSockets away (the server answers 403)."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1002})
        return
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
