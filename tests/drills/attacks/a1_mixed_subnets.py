"""A1: client subnets of which a part is somewhere else, or hides where it is."""

from __future__ import annotations

from pathlib import Path

from tests.drills.arena import Arena, attack, held
from tests.geoip.databases import write_mmdb
from tests.system.harness import System, eventually

OVERRIDES = """overrides:
  - {network: 198.51.100.0/25, country: US, lat: 39.0, lon: -77.5}
  - {network: 198.51.100.128/25, country: DE, lat: 50.1, lon: 8.7}
  - {network: 203.0.113.0/25, country: US, lat: 39.0, lon: -77.5}
"""
LOOSE = {
    "match": {"services": ["web"], "client_jurisdictions": ["EEA"]},
    "allow": {"jurisdictions": ["EEA"]},
    "on_unknown_location": "ignore",
    "on_anonymous": "trust",
}
EEA = {"eu-central", "eu-west"}


@attack("A1", "subnets that span countries, anonymising networks and too many networks")
def spanning(arena: Arena) -> str:
    """Each answer that a resolver keeps for a subnet must suit every client inside."""
    overrides, hidden = arena.fresh().with_suffix(".yaml"), arena.fresh().with_suffix(".mmdb")
    many = "".join(
        f"  - {{network: 10.{n >> 8}.{n & 255}.0/24, country: {('US', 'JP')[n % 2]}}}\n" for n in range(600)
    )
    overrides.write_text(OVERRIDES + many)
    write_mmdb(hidden, {"8.8.8.128/25": {"is_anonymous": True}}, kind="GeoIP2-Anonymous-IP")
    with arena.own(
        "--demo", "--geoip-overrides", str(overrides), "--geoip-anonymous-db", str(hidden)
    ) as demo:
        seen = [
            _inside(demo, "chat", "8.8.8.0/24", "in part by an anonymising network"),
            _inside(demo, "chat", "198.51.100.0/24", "client subnet spans DE and US"),
        ]
        answer = demo.api("PUT", "/v1/residency-rules/loose", json=LOOSE)
        held(answer.is_success, f"the rule could not be written: {answer.text}")
        eventually(lambda: "rule" in _said(demo, "web", "198.51.100.128/25"), "the rule is in force")
        seen += [
            _inside(demo, "web", "198.51.100.0/24", "client subnet spans DE and US"),
            _inside(demo, "web", "10.0.0.0/14", "client subnet of too many networks"),
        ]
        for subnet in ("8.8.8.0/24", "198.51.100.0/25"):  # held back by nothing that the rule says
            held(_said(demo, "web", subnet)["region"] not in EEA, f"{subnet} is held back")
    Path(hidden).unlink()
    return "; ".join(seen)


def _said(running: System, service: str, subnet: str) -> dict[str, str]:
    """What TXT says of the decision for a subnet."""
    answer = running.resolve(f"{service}.demo.test", subnet, "TXT").answer
    texts = [text.decode() for text in answer[0][0].strings]
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def _inside(running: System, service: str, subnet: str, because: str) -> str:
    """A subnet's clients are sent to the EEA, and it is said why."""
    said = _said(running, service, subnet)
    held(said["region"] in EEA, f"{subnet} was sent to {said['region']}")
    held(because in said.get("rule", ""), f"{subnet}: {said.get('rule')}")
    return f"{subnet} to {said['region']}"
