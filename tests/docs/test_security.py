"""docs/security.md names the tests that hold each claim's bound, each of which there is once, and says the numbers that the code has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from gtm.balancer.plane.contracts import Limits
from gtm.core.demand.belief import BURST, GROWTH
from gtm.core.latency.table import ALONE_MS
from gtm.dashboard.security import Attempts
from gtm.storage.session import Database
from tests.docs.blocks import ROOT
from tests.docs.numbers import numbers, plain, value

PAGE = (ROOT / "docs/security.md").read_text()
TABLES = [
    [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in part.splitlines()
        if not set(line) <= set("|-")
    ]
    for part in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
]
"""Every table, each a head and rows."""
LEDGERS = [table for table in TABLES if table[0][-1] == "test"]
CLAIMS = [row for table in LEDGERS for row in table[1:]]
_TESTS = Path(ROOT, "tests")
_TURNS = Database("postgresql://nobody@127.0.0.1:1/none").callers._limits  # noqa: SLF001 - with which it was made


def test_every_claim_has_its_bound_and_its_test() -> None:
    """No cell is empty, and each row has as many as its head."""
    assert len(CLAIMS) > 30
    assert all(len(row) == len(table[0]) for table in LEDGERS for row in table)
    assert all(all(row) for row in CLAIMS)


@pytest.fixture(scope="module")
def known() -> Counter[str]:
    """How often each name of a test is given."""
    texts = (path.read_text() for path in _TESTS.rglob("test_*.py"))
    return Counter(
        name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)
    )


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row[0][:40])
def test_its_tests_exist(row: list[str], known: Counter[str]) -> None:
    """By the names of functions, each of which is one test's alone."""
    assert {name: known[name] for name in re.findall(r"[^`, ]+", row[-1])} == dict.fromkeys(
        re.findall(r"`(test_\w+)`", row[-1]), 1
    )


NUMBERS: Mapping[str, tuple[float | str, ...]] = {
    "demand": ("core.demand.belief.BURST", "control.lead.demand.KEPT"),
    "demand, patiently": (GROWTH * BURST, GROWTH**2 * BURST, "core.demand.belief.HOURS"),
    "health of regions": ("control.lead.vantages.MAX_AGE",),
    "round trips that it alone measured, of a client's country, place, operator, network, and between regions": (
        ALONE_MS / 1000,
        2 * ALONE_MS / 1000,
    ),
    "leases of quotas, by the name of another token's edge": (
        "core.quota.ledger.MOST_INSTANCES",
        "core.quota.leases.DURATION",
    ),
    "certificates that endpoints show": (
        "core.model.certificates.MAX_NAMES",
        "core.model.certificates.MAX_TEXT",
    ),
    "the revision that it holds (a balancer's token, too)": ("control.live.watch.MOST_LOST",),
    "`handoff_keys` of its edges": (
        "core.handoff.keys.MOST",
        "control.lead.vantages.MAX_EDGES",
        "control.lead.vantages.MAX_INSTANCES",
        "control.handoff_keys.KEYS_A_SECOND",
    ),
    "names of edges, instances": ("control.lead.vantages.MAX_EDGES", "control.lead.vantages.MAX_INSTANCES"),
    "free slots, limit, waiting": ("core.model.units.MOST_SLOTS", "core.balance.spill.room.KNOWN_FOR"),
    "`parts`": ("control.lead.rooms.MOST_PARTS", "api.routes.balancers._MAX_REPORT"),
    "lines and reports": ("control.lead.rooms.MOST_OF_A_TOKEN", "control.lead.rooms._A_SECOND"),
    "feeds": ("control.live.subscribers.MOST_BALANCERS", "control.live.subscribers.MOST_EDGES"),
    "leases: used, denied, held": ("core.quota.ledger.MOST_INSTANCES", "core.quota.leases.DURATION"),
    "a lease that it never proves to hold or give back": ("core.quota.ledger.PROOF",),
    "`handoff_keys`": (
        "core.handoff.keys.MOST",
        "control.lead.balancers.MOST",
        "control.handoff_keys.LOOK_EVERY",
    ),
    "the inside of its region: model servers, tenants": ("control.lead.balancers.SHOWN_FOR",),
    "the same, how much": (
        "feed.reports.MAX_SHOWN",
        "feed.reports.MAX_SHOWN_NAMES",
        "feed.reports.MAX_SHOWN_TEXT",
        "feed.reports.MAX_SHOWN_TEXTS",
        "control.lead.balancers.MOST_SHOWN",
        "control.lead.balancers.MOST",
    ),
    "`usage` of an answer": ("core.balance.admission.tenants.MOST_MINUTES",),
    "running, waiting": ("core.balance.flights.SCRAPED_LASTS_S",),
    "a challenge at a name that it is bound to": (
        "control.policy.challenges.MAX_VALUES",
        "control.policy.challenges.MAX_CHALLENGES",
    ),
    "changes that one token sends at once": (_TURNS.waiting_each, _TURNS.patience),
    "tokens that nobody knows": (_TURNS.each, _TURNS.waiting_each),
    "an identity provider's keys": ("dashboard.sign_in.oidc._MOST_KEYS",),
    "a line of framing that does not end": ("balancer.wire.heads.MAX_FRAMING",),
    "a body in chunks of single bytes": ("balancer.wire.responses.TURN",),
    "bytes of bodies, heads and pipelined requests": ("balancer.plane.flow.HELD_BESIDE_QUEUE",),
    "an answer that is taken slowly": (Limits().take_rate, Limits().take_grace),
    "connections to an edge or to control, of one network": ("runtime.process.connections.MAX_CONNECTIONS",),
    "attempts to sign in": (Attempts.BURST, Attempts.EVERY_S),
    "a body that is announced and does not come": ("balancer.plane.exchange.FIRST", Limits().body_rate),
    "a handoff that is forged, replayed or expired": ("handoff.verifier.IN_VAIN",),
    "a model server's page of metrics": ("adapters.exposition.MAX_BYTES",),
    "a model server's answer to gRPC's check": (
        "balancer.health.asking.MAX_RECEIVED",
        "balancer.health.asking.MAX_READS",
    ),
    "members of a JSON object that limits go by": ("balancer.wire.bodies.MAX_MEMBERS",),
}
"""By claim, numbers that its row says, in bytes, seconds and minutes: constants by their names, and what else there is."""


@pytest.mark.parametrize("claim", NUMBERS)
def test_numbers_are_the_codes(claim: str) -> None:
    """Each stands in the row of its claim, but for one that is one (`once a second`)."""
    (row,) = [row for row in CLAIMS if claim in row[:2]]
    said = [*numbers(plain(" ".join(row[:-1]))), 1.0]
    missing = [one for one in NUMBERS[claim] if value(one) not in said]
    assert not missing, f"the row says {said}"
