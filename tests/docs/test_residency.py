"""The truth tables of the residency page, held against the fence."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gtm.core.decision.fence import fence
from gtm.core.model.policy import (
    Match,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    Tenant,
)
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import ANYWHERE, Location, Request
from gtm.core.model.services import Member, Service
from gtm.core.policy.compile import compile_policy
from tests.core.strategies import SHIPPED
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/residency.md").read_text()


def _table(heading: str) -> list[list[str]]:
    """The rows, without the heading's, of the table whose first heading cell this is."""
    (rows,) = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows.splitlines()]


def _region(name: str, country: str, operator: str | None) -> Region:
    return Region(name, 0.0, 0.0, country, (Endpoint(f"https://{name}.test"),), operator_country=operator)


def _pattern(phrase: str) -> str:
    """A reason without the country and the distance in it."""
    place = r"(unknown( places)?|[A-Z]{2})"
    phrase = re.sub(rf"spans {place} and {place}", "spans XX and XX", phrase)
    return re.sub(r"\d+ km", "0 km", re.sub(rf"(country|in) {place}", r"\1 XX", phrase))


REASONS = {
    _pattern(phrase)
    for phrase in re.findall(r"`(client (?:country|subnet) [^`]+)`", re.sub(r"\s+", " ", PAGE))
}


def _location(words: str) -> Location:
    if "too many networks" in words:
        return Location(source="mixed", spans=ANYWHERE)
    country = re.search(r"in ([A-Z]{2})", words)
    accuracy = re.search(r"within (\d+) km", words)
    spans = (*re.findall(r"\b([A-Z]{2})\b", words), *(("?",) if "unknown places" in words else ()))
    return Location(
        spans=spans if "subnet" in words else (),
        country=country[1] if country else None,
        source="override" if "override" in words else "geoip",
        anonymous="anonymous" in words,
        doubtful="doubtful" in words,
        accuracy_km=float(accuracy[1]) if accuracy else None,
    )


CLIENTS = Match(client_countries=("DE", "FR"))
AWAY = Places(regions=("r",))
SETTINGS = [
    ResidencyRule("r", CLIENTS, deny=AWAY),
    ResidencyRule("r", CLIENTS, deny=AWAY, on_unknown_location=OnUnknownLocation.IGNORE),
    ResidencyRule("r", CLIENTS, deny=AWAY, on_anonymous=OnAnonymous.TRUST),
    ResidencyRule("r", CLIENTS, deny=AWAY, on_doubtful_location=OnDoubtfulLocation.TRUST),
    ResidencyRule("r", CLIENTS, deny=AWAY, max_accuracy_km=100.0),
]


@pytest.mark.parametrize("row", _table("the client"), ids=lambda row: row[0])
def test_clients_concern_a_rule_as_the_table_says(row: list[str]) -> None:
    """Each cell of the table of clients is what the fence makes of that client under that setting."""
    service = Service("s", (Member("r"), Member("other")))
    regions = (_region("r", "US", None), _region("other", "US", None))
    for rule, cell in zip(SETTINGS, row[1:], strict=True):
        snapshot = compile_policy(
            Policy(regions=regions, services=(service,), residency_rules=(rule,)), SHIPPED
        )
        compiled = snapshot.services["s"]
        found = fence(compiled.rules, compiled.mask, Request("s", _location(row[0])))
        assert bool(found.matched) is (found.allowed != compiled.mask) is (cell == "applies"), rule
        for match in found.matched:
            (phrase,) = match.because
            assert _pattern(phrase) in REASONS


EU, US = ("EU",), ("US",)
RULES = [
    ResidencyRule("rule", allow=Places(jurisdictions=EU)),
    ResidencyRule("rule", allow=Places(operator_jurisdictions=EU)),
    ResidencyRule("rule", allow=Places(jurisdictions=EU, operator_jurisdictions=EU)),
    ResidencyRule("rule", deny=Places(operator_jurisdictions=US)),
    ResidencyRule("rule", deny=Places(jurisdictions=US, operator_jurisdictions=US)),
]


@pytest.mark.parametrize("row", _table("stands in"), ids=lambda row: "-".join(row[:2]))
def test_regions_are_allowed_as_the_table_says(row: list[str]) -> None:
    """Each cell of the table of regions is whether that rule leaves a region that stands and is run there."""
    country, operator, *cells = row
    region = _region("r", country, None if operator == "unknown" else operator)
    service = Service("s", (Member("r"),))
    for rule, cell in zip(RULES, cells, strict=True):
        meant = replace(rule, acknowledge_empty_fence=True)
        policy = Policy(regions=(region,), services=(service,), residency_rules=(meant,))
        compiled = compile_policy(policy, SHIPPED).services["s"]
        assert bool(fence(compiled.rules, compiled.mask, Request("s")).allowed) is (cell == "yes"), rule


EEA = ("EEA",)
ESTABLISHED = [
    ResidencyRule("rule", Match(tenant_jurisdictions=EEA), deny=AWAY),
    ResidencyRule("rule", Match(tenant_jurisdictions=EEA, tenants=("acme",)), deny=AWAY),
    ResidencyRule("rule", Match(tenant_jurisdictions=EEA, client_jurisdictions=EEA), deny=AWAY),
]


@pytest.mark.parametrize("row", _table("the tenant"), ids=lambda row: row[0])
def test_tenants_concern_a_rule_as_the_table_says(row: list[str]) -> None:
    """Each cell of the table of tenants is whether that rule concerns a request of that tenant from the US."""
    words, *cells = row
    name = "acme" if "acme" in words else "other"
    country = re.search(r"in ([A-Z]{2})", words)
    tenants = (Tenant(name, country=country[1] if country else None),)
    tenants += (Tenant("acme"),) if name != "acme" else ()
    service = Service("s", (Member("r"), Member("other")))
    regions = (_region("r", "US", None), _region("other", "US", None))
    for rule, cell in zip(ESTABLISHED, cells, strict=True):
        policy = Policy(regions=regions, services=(service,), residency_rules=(rule,), tenants=tenants)
        compiled = compile_policy(policy, SHIPPED).services["s"]
        stated = None if words == "not stated" else name
        found = fence(compiled.rules, compiled.mask, Request("s", Location("US"), stated))
        assert bool(found.matched) is (cell == "applies"), rule
