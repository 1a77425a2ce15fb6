"""The OpenAPI document says what the API does: schemathesis against a real server, operation by operation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection

from gtm.api.app import create_app
from gtm.api.query import known_query
from gtm.core.model.access import Role
from gtm.core.model.kinds import KINDS
from gtm.core.model.requests import Location
from gtm.feed.reports import EdgeReport
from gtm.storage.session import Database
from tests.api.conftest import Server
from tests.conftest import fresh_database
from tests.effort import examples
from tests.worlds.process import SETTINGS

if TYPE_CHECKING:
    from gtm.storage.embedded import EmbeddedPostgres

# Operations whose documents refer to other resources, or hold patterns, addresses and moments that a JSON Schema cannot
# describe fully: a document may fit the schema and still mean nothing (422). Everywhere else it may not.
_MEANING = [
    *("put_regions", "put_zones", "put_services", "put_residency_rules", "put_spillover_rules"),
    *("put_jurisdictions", "put_tenants", "put_data_classes"),  # a name in the body that is not the URL's
    *(f"patch_{kind}" for kind in KINDS),  # any object is a patch
    *("apply_policy", "rollback_revision", "create_token", "simulate_policy", "explain_route"),
    "plan_policy",
    *("get_demand", "get_recorded_demand", "get_demand_timeline"),  # moments
    *("list_audit", "export_audit", "list_health_changes", "list_health_steps"),  # moments
    "approve_fence",  # moments, and reasons of nothing but white space
    "reassign_managers",  # likewise
    "report",  # JSON Schema takes 7.0 for an integer; edges write 7
    "report_load",
    "report_balancer",  # likewise, and public keys
]
# Headers and cursors have to be ones that were handed out: others are refused with 400, and tags that do not match
# with 412.
_ACCEPTED = ["2xx", "304", "400", "404", "409", "412"]

# Invalid data is refused as such, or already for its length (a list with more items than there may be).
_REJECTED = ["400", "401", "403", "404", "405", "406", "409", "412", "413", "415", "422", "428"]

_CONFIG = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": _ACCEPTED},
        "negative_data_rejection": {"expected-statuses": _REJECTED},
    },
    "operations": [
        {
            "include-operation-id": name,
            "checks": {"positive_data_acceptance": {"expected-statuses": [*_ACCEPTED, "422"]}},
        }
        for name in _MEANING
    ],
}

_app = create_app(Database("postgresql://nobody@127.0.0.1:1/none"), SETTINGS, lambda _: Location())
_ROUTES = [route for route in _app.routes if isinstance(route, APIRoute)]
FEEDS = {"feed", "balancer_feed", "report_room"}
OPERATIONS = sorted({route.unique_id for route in _ROUTES if route.include_in_schema} - FEEDS)
"""All but those of lines that go on: tests/api/test_feed.py, tests/api/test_roles.py and tests/api/test_room.py have them."""


@cache
def _document() -> dict[str, Any]:
    document = _app.openapi()
    for path in document["paths"].values():
        for operation in path.values():
            # The tests send a good token always, whatever is generated; tests/api/test_resources.py sends others.
            operation.pop("security", None)
    return document


@cache
def _operations() -> dict[str, Any]:
    """Each operation by its name. Making them takes seconds, which collecting tests should not."""
    schema = schemathesis.openapi.from_dict(_document(), config=SchemathesisConfig.from_dict(_CONFIG))
    found = (result.ok() for result in schema.get_all_operations())
    return {operation.definition.raw["operationId"]: operation for operation in found}


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres, prepared_template: str) -> Iterator[Server]:
    """One control tier for all operations: what they leave behind makes the next ones harder."""
    with fresh_database(postgres, prepared_template) as url, Server(url) as running:
        yield running


PHASES = (Phase.explicit, Phase.generate)  # shrinking would take long, and the first failure says enough


def _lost_on_the_wire(case: schemathesis.Case) -> bool:
    """Whether an invalid value of a parameter (an empty list, an empty object) is no longer there when it is sent."""
    return any(value is None or value in ([], {}, [None]) for value in (case.query or {}).values())


@pytest.mark.endurance
@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_operation(operation_id: str, server: Server) -> None:
    """No answer to valid or invalid input is one that the description does not name."""
    operation = _operations()[operation_id]
    role = {"report": Role.EDGE, "report_load": Role.REPORTER, "report_balancer": Role.BALANCER}.get(
        operation_id, Role.ADMIN
    )
    cases = operation.as_strategy(GenerationMode.POSITIVE)
    # Without parameters and body there is nothing to get wrong.
    if operation.query or operation.path_parameters or operation.body:
        cases |= operation.as_strategy(GenerationMode.NEGATIVE)

    @given(case=cases)
    @settings(
        max_examples=examples(20, least=3),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=PHASES,
    )
    def holds(case: schemathesis.Case) -> None:
        if operation_id == "get_lists":  # 503 unless an edge has said what is up
            reports = server.app.state.context.replica.active.reports
            server.do(lambda: reports.take("edge-1", "127.0.0.1", EdgeReport("1", 1, 1, {})))
        case.call_and_validate(
            base_url=server.url,
            headers={"Authorization": f"Bearer gtm_test_{role.value}"},
            excluded_checks=[negative_data_rejection] if _lost_on_the_wire(case) else [],
        )

    holds()


def test_all_operations_are_tried() -> None:
    """All that the document describes, whose making is spared those who only collect tests."""
    assert {*OPERATIONS, *FEEDS} == {*_operations()}


def test_schemas_are_named_as_users_know_them() -> None:
    """No name of a module of gtm's: two schemas of one name get those."""
    assert [name for name in _document()["components"]["schemas"] if "__" in name] == []


def test_every_endpoint_rejects_query_parameters_that_it_does_not_have() -> None:
    """A router that was not made by `strict_router` would take them; monitors' are passed over."""
    assert len(_ROUTES) > len(OPERATIONS)
    strict = [known_query in (one.dependency for one in route.dependencies) for route in _ROUTES]
    assert {route.path for route, holds in zip(_ROUTES, strict, strict=True) if not holds} == {
        "/healthz",
        "/readyz",
    }
