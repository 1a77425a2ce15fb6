"""docs/limits.md says the limits that the code has: each number of its tables is a constant's, and each constant that bounds what comes from outside stands there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import gtm
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.plane.timeouts import Timeouts
from gtm.core.capacity import durations
from gtm.dashboard.security import _MOST_NETWORKS, Attempts
from gtm.dashboard.sign_in.oidc import _BITS, _EXCHANGES
from gtm.dashboard.sign_in.provider import _LASTS
from gtm.dns.io.tcp import TcpLimits
from gtm.dns.protocol import wire
from gtm.runtime.edge.worker.carry import LIMITS as CARRY_LIMITS
from gtm.runtime.process.http import PatientProtocol as Patient
from gtm.runtime.process.sockets import TAKES_NOTHING_MS
from gtm.storage.session import Database
from tests.docs.numbers import numbers, plain, value
from tests.sources import parsed

ROOT = Path(gtm.__file__).parent
PAGE = (ROOT.parent / "docs" / "limits.md").read_text()
_BALANCER = Limits()
_TURNS = Database("postgresql://nobody@127.0.0.1:1/none").callers._limits  # noqa: SLF001 - with which it was made
_FRAMED = 8
"""Bytes of framing for each byte of a body: it stands in expressions."""

TABLES: Mapping[str, Mapping[str, tuple[float | str, ...]]] = {
    "Requests at control and edges": {
        "a request's head: first line and header lines": (
            "runtime.process.http.MAX_HEAD",
            "runtime.process.http.MAX_HEADERS",
        ),
        "the head's arrival": (Patient.head_timeout,),
        "the body's arrival": (Patient.body_timeout, "http.requests.incoming.BODY_TIMEOUT"),
        "what control sends": (TAKES_NOTHING_MS / 1000,),
        "`X-Forwarded-For`, `Forwarded`, of trusted proxies": ("geoip.client._MAX_HEADER",),
        "sizes and extensions of chunks, trailers": ("runtime.process.http.MAX_HEAD", _FRAMED),
        "a body, at control": (
            *("api.app.MAX_BODY", "api.middleware.FREE_BODY"),
            *(
                "dashboard.form_bodies.MAX_FORM",
                "dashboard.form_bodies.MAX_UPLOAD",
                "dashboard.visits.STRANGERS",
            ),
        ),
        "path and query, at an edge": ("http.app.MAX_URL",),
        "a token, at an edge": ("http.requests.callers._MAX_TOKEN",),
        "a batch of look-ups": ("http.requests.lookup.MAX_BATCH_BYTES", "http.requests.lookup.MAX_BATCH"),
        "a value of a look-up": ("http.requests.lookup.MAX_VALUE",),
        "round trips that are posted to an edge": (
            *("http.samples.intake.MAX_BEACON_BYTES", "http.samples.intake.MAX_BEACON_SAMPLES"),
            *("http.samples.intake.MAX_SAMPLES_BYTES", "http.samples.intake.MAX_SAMPLES"),
        ),
        "the name of a region that round trips are of": ("http.samples.intake._MAX_NAME",),
        "lists and objects within each other": ("nesting.MAX_DEPTH",),
    },
    "Requests at a balancer": {
        "a request's head": ("balancer.wire.heads.MAX_HEAD", "balancer.wire.heads.MAX_HEADERS"),
        "the head's arrival": (_BALANCER.head_timeout,),
        "fields behind a body": (
            "balancer.wire.heads.MAX_TRAILERS",
            "balancer.wire.heads.MAX_TRAILER_BYTES",
        ),
        "framing between two bytes of a body, or behind the body: one chunk's size and extensions, trailers": (
            "balancer.wire.heads.MAX_FRAMING",
        ),
        "framing of a whole chunked body": ("balancer.wire.heads.MAX_HEAD", _FRAMED),
        "pieces of a body that are handled in one turn, of requests and of answers": (
            "balancer.wire.responses.TURN",
            "balancer.wire.responses.PIECE",
        ),
        "silence in the middle of a body": (_BALANCER.stall_timeout,),
        "a body's pace": (_BALANCER.body_rate, _BALANCER.body_grace),
        "an answer's pace": (_BALANCER.take_rate, _BALANCER.take_grace),
        "what a client takes of an answer": (_BALANCER.stall_timeout,),
        "what a client goes on sending after its answer, which nobody reads": (
            "balancer.plane.client.downstream.LINGER",
            "balancer.plane.client.downstream.MOST_LINGER",
        ),
        "silence of a model server": (Timeouts().between, Timeouts().failing),
        "the head of a stream of which nothing else has come": ("balancer.plane.timeouts.HEAD_HELD",),
        "second servers that are asked because the first is late (`hedge`)": (
            *("core.balance.hedging.WINDOW_S", "core.balance.hedging.MOST_KINDS"),
            *("balancer.plane.hedging.MOST_SERVICES", "balancer.plane.hedging.MOST_PIECES"),
        ),
        "fields behind an answer": ("balancer.wire.heads.MAX_HEADERS",),
        "places in the queue, of one client network": (),
        "what comes before a slot": ("balancer.plane.exchange.FIRST",),
        "what is kept of what clients send": ("balancer.plane.flow.HELD_BESIDE_QUEUE",),
        "handoffs of a client that are not believed": ("handoff.verifier.IN_VAIN",),
        "a body that is read because limits go by it": (
            *("balancer.wire.bodies.MAX_READ", "balancer.wire.bodies.MAX_BRACKETS"),
            *("balancer.wire.bodies.MAX_MEMBERS", "balancer.wire.bodies.MAX_MEMBER_NAME"),
        ),
        "a part of a form that is read for the same reason": (
            *("balancer.wire.bodies.MAX_PART_HEAD", "balancer.wire.bodies.MAX_PART_LINES"),
            "balancer.wire.bodies.MAX_PARTS",
        ),
        "a body of which the model alone is looked for": ("balancer.wire.bodies.MAX_READ",),
        "what a body with a Content-Encoding becomes, where it is read": (
            "balancer.wire.bodies.MAX_READ",
            "balancer.wire.bodies.FREE",
            "balancer.wire.bodies.TIMES",
        ),
        "a body that is awaited for hints": ("balancer.wire.facts.MAX_INSPECTED",),
        "the name of a model or a session, in it": ("balancer.wire.facts.MAX_NAME",),
        "a handoff": ("handoff.jwt.MAX_TOKEN", "handoff.jwt.MAX_CREDITS"),
        "a header of the PROXY protocol": (
            "balancer.plane.client.proxy_protocol._MAX_V1",
            "balancer.plane.client.proxy_protocol._MAX_V2",
            2,
        ),
        "a request of the balancer's own page": (
            "runtime.balancer.admin._MAX",
            "runtime.balancer.admin._CONNECTIONS",
        ),
    },
    "Requests that an edge carries": {
        "a body that another region may be asked with, where the first fails": (
            "runtime.edge.worker.carry.REPLAY",
        ),
        "regions' endpoints that are asked for one request": (CARRY_LIMITS.tries,),
        "regions that may have begun one request": (2,),
        "an endpoint that took no connection is asked last": (
            "runtime.edge.worker.carry.SHUNNED",
            "runtime.edge.worker.carry.UNPROVEN",
        ),
        "a connection to a region that waits for the next request": ("runtime.edge.worker.carry.IDLE",),
        "requests alike that go with one handoff": ("http.answers.routes.REUSED",),
    },
    "Answers that a balancer asks for": {
        "a page of metrics": (
            "adapters.exposition.MAX_BYTES",
            "adapters.servers.MAX_LINES",
            "adapters.exposition.MAX_LINE",
        ),
        "the answer to a check": (
            "balancer.health.checks.MAX_BODY",
            "adapters.listing.MAX_LIST",
            "balancer.health.asking.MAX_RECEIVED",
            "balancer.health.asking.MAX_READS",
        ),
        "gRPC's heads and message": (
            "balancer.health.asking._MOST_HEADS",
            "balancer.health.asking.MAX_FIELDS",
            "balancer.health.asking._MAX_MESSAGE",
        ),
        "load that a header of an answer says": ("adapters.orca.MAX_HEADER", "adapters.orca.MAX_ENTRIES"),
        "servers that a backend's name stands for, and those of a balancer": (
            "runtime.balancer.backends_file.MOST_OF_NAME",
            "runtime.balancer.backends_file.MOST",
        ),
        "a peer's proof": ("balancer.plane.backend.backends._MOST",),
        "balancers of a region that hear each other": (
            "runtime.balancer.peers.MOST_PEERS",
            "runtime.balancer.peers.MOST_OF_A_TOKEN",
            "runtime.balancer.peers.MOST_STARTS",
        ),
        "a peer's datagram": (
            "runtime.balancer.peers.MOST",
            "runtime.balancer.peers.MOST_MEMBERS",
            "runtime.balancer.peers.MOST_BACKENDS",
        ),
        "answers before the answer (1xx)": ("balancer.plane.backend.upstream._MAX_INTERIM",),
        "chunks and reads that an answer comes in": (
            "balancer.health.asking._PIECES",
            "balancer.health.asking._PIECE",
        ),
        "framing of an answer to a check": (
            "balancer.health.asking._FRAMING",
            "balancer.health.asking._FRAMED",
        ),
        "the head of an answer, and trailers": ("balancer.wire.heads.MAX_HEAD",),
    },
    "Answers that edges, control and the command ask for": {
        "the answer to a probe": ("prober.checks.MAX_BODY",),
        "addresses that an edge probes by themselves": ("prober.schedule.MOST_ADDRESSES",),
        "checks of such addresses at once": ("prober.schedule.ADDRESSES_AT_ONCE",),
        "a message of control's feed": ("feed.wire.MAX_LINE",),
        "an answer of an identity provider": ("dashboard.sign_in.oidc._MOST_BYTES",),
    },
    "DNS": {
        "a query over UDP": ("dns.io.udp.MAX_DATAGRAM",),
        "a name, and a label of it": ("dns.protocol.wire.MAX_NAME", "dns.protocol.wire.MAX_LABEL"),
        "replies over UDP": (),
        "connections over TCP": (TcpLimits().connections, TcpLimits().per_client),
        "records and EDNS options of a query": ("dns.protocol.wire.MAX_RECORDS",),
        "queries over TCP that are answered in one turn": ("dns.io.tcp._TURN", "dns.io.tcp._TURN_TIME"),
    },
    "Control": {
        "a statement in the database": (
            "storage.connecting.STATEMENT_TIMEOUT",
            "storage.connecting.LOCK_TIMEOUT",
        ),
        "requests that wait for the database": (
            *(_TURNS.waiting_each, _TURNS.waiting, _TURNS.patience),
            *(_TURNS.each, _TURNS.places),
        ),
        "feeds that one token follows by": (
            "control.live.subscribers.MOST_EDGES",
            "control.live.subscribers.MOST_BALANCERS",
        ),
        "a balancer's report of free slots": (
            *("api.routes.balancers._MAX_REPORT", "control.lead.rooms.MOST_PARTS"),
            *("control.lead.rooms.MOST_OF_A_TOKEN", "control.lead.rooms.MOST_LINES"),
        ),
        "load reports": (
            "api.routes.load.MAX_BODY",
            "core.capacity.load.MAX_REPORTS",
            "core.capacity.load.MAX_MODELS",
        ),
        "a question without a draft (`explain`)": ("api.routes.policy.drafts.MAX_QUESTION",),
        "a policy's text in a request, recorded traffic": (
            "api.routes.policy.reading.MAX_TEXT",
            "control.policy.traffic.MAX_FILE",
        ),
        "fields of a page's form; a form to sign in": (
            "dashboard.form_bodies.MAX_FIELDS",
            "dashboard.form_bodies._MAX_HEAD",
            "dashboard.sign_in.pages.MAX_FORM",
        ),
        "challenges of certificate authorities in a zone": (
            "control.policy.challenges.MAX_CHALLENGES",
            "control.policy.challenges.MAX_VALUES",
        ),
        "sign-in links that are open": (
            "control.live.sessions.MOST_LINKS",
            "control.live.sessions.LINK_LASTS",
        ),
        "sessions of one person": ("control.live.sessions.MOST_SESSIONS",),
        "what anchors and merge keys make of a YAML text": (
            "yaml_nodes.MAX_GROWTH",
            "yaml_nodes.FREE_GROWTH",
        ),
        "an identity provider's keys": ("dashboard.sign_in.oidc._MOST_KEYS", _BITS[0], _BITS[-1]),
        "callbacks of a sign-in": (_LASTS / 60, "dashboard.sign_in.provider._LONGEST"),
        "attempts to sign in that failed": (
            *(Attempts.BURST, Attempts.EVERY_S),
            Attempts.BURST,
        ),
        "networks whose attempts are remembered": (2 * _MOST_NETWORKS,),
        "kinds of pushes in a balancer's report": ("feed.reports.MAX_PUSHES",),
        "model servers, and tenants, that a balancer's report shows": (
            *("feed.reports.MAX_SHOWN", "feed.reports.MAX_SHOWN_NAMES"),
            *("feed.reports.MAX_SHOWN_TEXT", "feed.reports.MAX_SHOWN_TEXTS"),
        ),
        "model servers, and tenants, in an answer of `GET /v1/balancers/inside`": (
            "control.lead.balancers.MOST_SHOWN",
        ),
        "services and models that a balancer's report tells the times of": (
            *("core.capacity.durations.MOST_TOLD", "feed.reports.MAX_SHOWN_TEXT"),
            len(durations.BOUNDS) + 1,
        ),
        "the same, that are recorded of a region in a minute": ("control.lead.history.requests.MOST_ROWS",),
        "services and peers that a region's pushes are recorded by in a minute": (
            "control.lead.history.requests.MOST_WAYS",
        ),
        "codes that are exchanged with an identity provider": (
            *(_EXCHANGES.places, _EXCHANGES.each, _EXCHANGES.waiting_each),
        ),
    },
    "Files that an operator gives": {
        "policies, overrides of locations": (
            "yaml_nodes.MAX_BYTES",
            "yaml_nodes.MAX_NODES",
            "yaml_nodes.MAX_GROWTH",
            "yaml_nodes.FREE_GROWTH",
        ),
        "files and folders below a policy's folder": ("documents.policy_files.MAX_ENTRIES",),
        "other systems' files, for `gtm import`": (
            "documents.imports.parts.MAX_BYTES",
            "documents.imports.parts.MAX_RECORDS",
            "documents.imports.gdnsd._MAX_SET",
            "documents.imports.gdnsd._MAX_ANSWERS",
        ),
        "lines of an access log, for `--check-paths`": ("cli.servers.checks._LONGEST",),
    },
}
"""By heading and first cell of a row, the numbers of its second, in bytes and seconds: constants by their names, and what else there is."""

ROOMS = (
    *("adapters", "balancer", "dns/io", "dns/protocol", "geoip/client.py", "handoff", "http", "nesting.py"),
    *("prober", "runtime/process/http.py", "runtime/balancer/admin.py", "runtime/balancer/peers.py"),
    *("api/app.py", "api/routes/balancers.py", "api/routes/load.py", "control/lead/rooms.py"),
    *("control/live/sessions.py", "control/live/subscribers.py", "dashboard/form_bodies.py"),
    *("dashboard/sign_in", "feed/wire.py", "documents/imports/parts.py", "yaml_nodes.py"),
)
"""Where bytes from outside are read."""
APART: Mapping[str, str] = {
    "documents.imports.parts.MAX_TTL": "seconds, as policies have them",
    "adapters.fullness.MOST_BYTES": "a longer answer goes to the client unread",
    "balancer.config.MAX_HOST": "of the operator's file",
    "balancer.decide.picking.MOST_HELD": "a memory",
    "balancer.metrics.MOST_ENDED": "rows of metrics",
    "balancer.plane.proxy.MOST_SOUGHT": "of servers that are asked",
    "balancer.plane.stats.MOST_SERIES": "a memory",
    "balancer.wire.endpoints.MAX_ID": "what is longer names nothing",
    "balancer.decide.gate.MOST_CHOICES": "a memory",
    "balancer.decide.picking._MOST_LOOSENED": "a memory",
    "balancer.decide.queueing.MOST_TOTALS": "rows of metrics",
    "balancer.health.check_settings.MAX_SERVICE": "of the operator's file",
    "balancer.plane.access.LONGEST": "a line that it writes",
    "balancer.plane.backend.backends.MAX_IDLE": "connections that it keeps",
    "balancer.plane.client.downstream._MAX_UNREAD": "of a body that nobody reads any more",
    "balancer.plane.exchange._MAX_BUFFER": "where it stops reading",
    "balancer.plane.exchange.MAX_REPLAY": "what it could send again",
    "balancer.plane.tracing.MOST": "spans that wait",
    "balancer.wire.estimate._MOST_ITEMS": "how far it looks",
    "balancer.wire.heads._MAX_HOSTS": "a memory",
    "balancer.wire.heads._MAX_KINDS": "a memory",
    "balancer.wire.responses._MAX_KINDS": "a memory",
    "balancer.wire.bodies._MOST_FLAT": "what is longer names nothing",
    "balancer.wire.usage._LONGEST": "how far it looks",
    "balancer.wire.usage._MOST_SEARCHED": "how far it looks",
    "dashboard.sign_in.oidc._LONGEST_PART": "follows from the bits of keys",
    "dns.io.udp._MAX_SOURCES": "a memory",
    "dns.protocol.options._MAX_TEXT": "of the operator's settings",
    "dns.protocol.wire.MAX_OPTIONS": "is `MAX_RECORDS`, in the same row",
    "handoff.own_keys._MAX_FILE": "a file that it wrote",
    "http.answers.quotas._MAX_WAITING": "of its own threads",
    "http.answers.authorize._MOST_DETAIL": "of what it answers",
    "http.samples.beacons.MAX_TARGETS": "of what it answers",
    "http.samples.intake.MAX_PAIRS": "a memory",
    "prober.schedule.MOST_MISSED": "of its own rounds",
    "prober.schedule._MOST_LEFT_OUT": "of what it tells",
    "prober.schedule.MOST_OUTCOMES": "of what it tells",
}
"""Constants there that refuse nothing of what comes, and what they are."""


def _rows(heading: str) -> Iterator[tuple[str, str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]:
        first, second, _ = line.split("|")
        yield plain(first), plain(second)


def _constants() -> Iterator[str]:
    """Those of the rooms that are called after a bound."""
    for room in ROOMS:
        path = ROOT / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for node in parsed(file).body:
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name) and re.match(r"_?(MAX|MOST|LONGEST)(_|$)", name.id):
                            yield f"{module}.{name.id}"


def test_numbers_are_found() -> None:
    """In words and digits, with units; not those within names."""
    assert numbers("ten of a /48 of IPv6, 1,024 and 64 KiB, or 5 ms of P-256") == [0.005, 10, 1024, 65536]


@pytest.mark.parametrize("heading", TABLES)
def test_each_number_is_the_codes(heading: str) -> None:
    """Each row of each table, and no other."""
    rows = dict(_rows(heading))
    assert rows.keys() == TABLES[heading].keys()
    for what, bound in rows.items():
        assert numbers(bound) == sorted(map(value, TABLES[heading][what])), what


def test_every_table_is_looked_at() -> None:
    """Under each heading of the page that has one."""
    tables = [one for one in re.findall(r"^## (.*)$", PAGE, re.MULTILINE) if list(_rows(one))]
    assert tables == list(TABLES)


def test_each_bound_on_what_comes_stands_there() -> None:
    """Or is none; and of what is said to be none each is there."""
    told = {one for rows in TABLES.values() for row in rows.values() for one in row if isinstance(one, str)}
    found = set(_constants())
    assert found - told == APART.keys()
    assert wire.MAX_OPTIONS == wire.MAX_RECORDS
