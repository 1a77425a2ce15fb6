"""Host names that state a tenant or data class, in redirects and look-ups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.services import HostName
from tests import worlds
from tests.http.world import Edge

HOSTS = (
    "web.demo.test",
    HostName("clinic.demo.test", "clinic"),
    HostName("shop.demo.test", "shop"),
    HostName("*.health.demo.test", None, "health"),
)


def _named(policy: Policy) -> Policy:
    """A tenant's rule on the service with the names above."""
    rule = worlds.rule("pin", "DE", services="web", tenants="clinic", data_classes="health")
    named = worlds.changed(policy, "services", "web", hostnames=HOSTS)
    return replace(named, residency_rules=(*policy.residency_rules, rule))


@pytest.fixture
def named(run_edge: Callable[..., Edge]) -> Edge:
    """An edge that answers for them."""
    edge = run_edge(load=False, open_lookups=True)
    edge.load(change=_named)
    return edge


@pytest.mark.parametrize(
    ("host", "said", "region"),
    [
        ("web.demo.test", {}, "eu-central"),
        ("shop.demo.test", {}, "us-east"),
        ("shop.demo.test", {"x-gtm-tenant": "shop"}, "us-east"),
        ("clinic.demo.test", {}, "eu-central"),
        ("clinic.demo.test", {"x-gtm-data-class": "health"}, "eu-central"),
        ("CLINIC.demo.test.:80", {}, "eu-central"),
        ("a.health.demo.test", {}, "eu-central"),
        ("a.health.demo.test", {"x-gtm-tenant": "shop"}, "us-east"),
        ("web.demo.test", {"x-gtm-tenant": "shop"}, "us-east"),
    ],
)
def test_redirects_go_by_both(named: Edge, host: str, said: dict[str, str], region: str) -> None:
    """What the name states holds as if the request had stated it; what it leaves open the request may state."""
    for _ in range(2):
        reply = named.get("/", headers={"host": host, **said})
        assert (reply.status_code, reply.headers.get("x-gtm-region")) == (307, region)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("shop.demo.test", {"x-gtm-tenant": "clinic"}),
        ("clinic.demo.test", {"x-gtm-tenant": "shop"}),
    ],
)
def test_contradictions_are_refused(named: Edge, host: str, said: dict[str, str]) -> None:
    """Another tenant than the name's is an error that names both."""
    reply = named.get("/", headers={"host": host, **said})
    assert reply.status_code == 400
    problem = reply.json()
    assert problem["code"] == "contradiction"
    assert all(f"`{name}`" in problem["detail"] for name in ("clinic", "shop", host))


def test_look_ups_by_a_name(named: Edge) -> None:
    """`host` asks as a request by that name would be; with `service` it must be that service's."""
    assert named.route(host="shop.demo.test").json()["region"] == "us-east"
    found = named.route(host="b.health.demo.test", service="web", explain="1").json()
    assert (found["region"], found["request"]["data_class"], found["request"]["tenant"]) == (
        "eu-central",
        "health",
        None,
    )
    for wrong, status, code in (
        ({"host": "shop.demo.test", "service": "chat"}, 400, "contradiction"),
        ({"host": "shop.demo.test", "tenant": "clinic"}, 400, "contradiction"),
        ({"host": "nope.demo.test"}, 404, "unknown_service"),
        ({"tenant": "shop"}, 400, "invalid_request"),
    ):
        reply = named.route(**wrong)
        assert (reply.status_code, reply.json()["code"]) == (status, code)
