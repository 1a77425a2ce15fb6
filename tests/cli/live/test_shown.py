"""What `gtm explain` and `gtm regions` are told, they show, or it is listed here as what only `--json` shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from gtm.cli.common import client
from gtm.cli.live import routing
from gtm.cli.policy import regions
from gtm.client import Answer, Call
from gtm.client.objects import JsonObject
from gtm.core.decision.decide import routed
from gtm.core.decision.explain import answer
from gtm.core.model.requests import Location, Request
from gtm.demo.policy import demo_policy
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.schema import to_document
from tests import worlds

NOT_EXPLAINED = {
    "candidates.country",
    "candidates.display_name",
    "candidates.endpoints",
    "candidates.estimate_source",
    "candidates.monitored",
    "candidates.operator_country",
    "candidates.processing_ms",
}
"""Of a candidate: `why` says of all that matters; the rest is for programs."""
NOT_LISTED = {
    "cost_weight",
    "display_name",
    "drain_deadline",
    "draining_since",
    "endpoints.cname",
    "endpoints.ipv4",
    "endpoints.ipv6",
    "health.admin_state",
    "health.disputed",
    "health.endpoints.detail",
    "health.endpoints.latency_ms",
    "health.endpoints.since",
    "health.endpoints.url",
    "health.endpoints.vantages",
    "lat",
    "lon",
    "models",
    "operator_country",
    "probe",
    "reserve",
    "slow_start",
    "spill_in",
    "subdivision",
}
"""Of a region, by `gtm regions list`: `gtm regions show` has most of it."""
NOT_SHOWN = {
    "drain_deadline",
    "health.admin_state",
    "operator_country",
    "probe.addresses",
    "probe.body_regex",
    "probe.down_threshold",
    "probe.expected_status",
    "probe.host",
    "probe.json_field",
    "probe.json_value",
    "probe.port",
    "probe.timeout",
    "probe.up_threshold",
    "probe.verify_tls",
    "reserve",
    "slow_start",
    "spill_in",
}
"""Of a region, by `gtm regions show`: settings that change nothing from one day to the next."""
NOT_LISTED_OF_SERVICES = {
    "affinity",
    "cors",
    "display_name",
    "exploration",
    "families",
    "answer",
    "handoff",
    "push",
    "https_record",
    "max_answers",
    "members.capacity",
    "members.share",
    "members.weight",
    "min_ttl",
    "on_overload",
    "on_unusable",
    "priority",
    "refusal",
    "service_time_ms",
    "zone",
}
"""Of a service: its settings, which `gtm export` has."""


class Watched(JsonObject):
    """An object of JSON that notes by path which of its fields were read."""

    read: ClassVar[set[str]] = set()

    def __init__(self, content: dict[str, Any], path: str = "") -> None:
        super().__init__({key: _watched(value, f"{path}{key}") for key, value in content.items()})
        self._path = path

    def __getitem__(self, key: str) -> Any:
        self.read.add(f"{self._path}{key}")
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        self.read.add(f"{self._path}{key}")
        return super().get(key, default)

    def items(self) -> Any:
        """Whoever goes through all fields has read them."""
        self.read.update(f"{self._path}{key}" for key in self)
        return super().items()


def _watched(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return Watched(value, f"{path}.")
    if isinstance(value, list):
        return [_watched(item, path) for item in value]
    return value


def _paths(value: Any, path: str = "") -> set[str]:
    """Every field below a value, lists looked through."""
    found: set[str] = set()
    if isinstance(value, dict):
        for key, item in value.items():
            found |= {f"{path}{key}"} | _paths(item, f"{path}{key}.")
    if isinstance(value, list):
        for item in value:
            found |= _paths(item, path)
    return found


def unread(content: dict[str, Any], show: Callable[[Watched], None]) -> set[str]:
    """The fields that showing an object does not read, those below an unread one left out."""
    Watched.read.clear()
    show(Watched(content))
    missed = _paths(content) - Watched.read
    return {path for path in missed if path.rpartition(".")[0] not in missed}


def test_what_is_explained_is_shown() -> None:
    """Every field of a candidate and of a rule, for a request that regions are excluded from by law."""
    view = worlds.view(demo_policy(), now=time.time(), shipped=shipped_jurisdictions())
    request = Request("records", Location("DE", 52.5, 13.4), "clinic", "health")
    found = routed(view, request)
    option = found.pick(0.5)
    content = answer(
        view, request, found.explained(option), client=None, endpoint=found.endpoint(option), full=True
    )
    assert content["candidates"]
    assert content["rules"]
    missed = unread(content, lambda told: routing.tell(told, as_json=False, full=True))
    assert {path for path in missed if path.startswith(("candidates.", "rules."))} == NOT_EXPLAINED


class _Control:
    """Control's answers, each of whose objects notes what is read of it."""

    def __init__(self, document: dict[str, Any], health: dict[str, Any]) -> None:
        self._document = document
        self._health = health

    def get_health(self) -> dict[str, Any]:
        """Everybody's health."""
        return JsonObject(regions=[Watched(self._health, "health.")])

    def send(self, _: Call[Any]) -> Answer[Any]:
        """The resource."""
        return Answer(200, self._told(), {})

    def pages(self, _: Call[Any]) -> list[dict[str, Any]]:
        """The list of it alone."""
        return [JsonObject(items=[self._told()], managed_by={})]

    def _told(self) -> dict[str, Any]:
        return Watched(self._document)


@pytest.mark.parametrize(
    ("command", "kind", "unshown"),
    [
        (regions.list_, "regions", NOT_LISTED),
        (lambda: regions.show("eu-central"), "regions", NOT_SHOWN),
        (regions.list_services, "services", NOT_LISTED_OF_SERVICES),
    ],
    ids=["regions list", "regions show", "services list"],
)
def test_what_there_is_of_a_resource_is_shown(
    monkeypatch: pytest.MonkeyPatch, command: Callable[[], None], kind: str, unshown: set[str]
) -> None:
    """Every field of a resource, and of a region's health."""
    resource = getattr(demo_policy(), kind)[0]
    document = json.loads(msgspec.json.encode(to_document(resource)))
    endpoint = {"status": "up", "since": 1.0, "detail": "", "latency_ms": 2.0}
    health = {
        "region": resource.name,
        "admin_state": "active",
        "status": "up",
        "disputed": False,
        "endpoints": [
            {**endpoint, "url": one["url"], "vantages": {}} for one in document.get("endpoints", ())
        ],
    }
    monkeypatch.setattr(client, "control", lambda *_: _Control(document, health))
    Watched.read.clear()
    command()
    told = _paths(document) | (_paths({"health": health}) - {"health"} if kind == "regions" else set())
    missed = told - Watched.read
    assert {path for path in missed if path.rpartition(".")[0] not in missed} == unshown
