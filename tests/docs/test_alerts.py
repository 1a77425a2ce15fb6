"""The shipped alerts and dashboard: of metrics that there are, with a runbook section each, and accepted by Prometheus itself."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from gtm.api.gauges import GAUGES
from gtm.balancer import metrics
from gtm.telemetry import EDGE_GAUGES, METRICS
from tests.tools import tool

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "gtm.rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "gtm.json"
OTHERS = {
    "gtm_dns_top_clients",
    "gtm_control_requests_total",
    "gtm_control_request_duration_seconds_bucket",
}
_OF_BALANCERS = Path(metrics.__file__).read_text()
BALANCERS = {
    *re.findall(r'"(gtm_balancer_\w+)"', _OF_BALANCERS),
    *(f"{name}_bucket" for name in re.findall(r'_histogram\("(\w+)"', _OF_BALANCERS)),
}
KNOWN = {*GAUGES, *EDGE_GAUGES, *METRICS, *OTHERS, *BALANCERS}


def _alerts() -> list[dict[str, str]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _metrics(text: str) -> set[str]:
    return set(re.findall(r"\bgtm_[a-z0-9_]+", text))


@pytest.mark.drill
def test_prometheus_takes_the_rules_in_and_they_fire_as_meant() -> None:
    """Promtool checks them, and plays worlds in which some must fire and others must not."""
    promtool = tool("promtool")
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(RULES.with_name("gtm.test.yaml"))]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_about_metrics_that_there_are() -> None:
    """A rule about a metric that nobody exports never fires."""
    for alert in _alerts():
        assert _metrics(alert["expr"]) <= KNOWN, alert["alert"]


def test_each_alert_has_its_section_in_the_runbook() -> None:
    """And the runbook has no other."""
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    alerts = [alert["alert"] for alert in _alerts()]
    assert sorted(sections) == sorted(alerts)
    for alert in _alerts():
        assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in {"page", "ticket"}


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    """Every panel asks for something, of metrics that are exported, and no two panels overlap."""
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    places = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        covered = {
            (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
        }
        assert not places & covered, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= covered
    for panel in panels:
        expressions = [target["expr"] for target in panel["targets"]]
        assert expressions
        for expression in expressions:
            found = _metrics(expression)
            assert found
            assert found <= KNOWN, panel["title"]


def test_every_metric_is_documented() -> None:
    """In docs/operations.md, by its name."""
    text = (ROOT / "docs" / "operations.md").read_text()
    assert {name for name in (*GAUGES, *EDGE_GAUGES, *METRICS) if name not in _metrics(text)} == set()
