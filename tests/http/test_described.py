"""The edge's OpenAPI document says what the edge does: whatever it allows is asked, and every answer is one that it describes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection

from gtm.http.description.document import document
from gtm.http.problems import CODES
from tests.effort import examples
from tests.http.world import TOKENS, Edge

OPERATIONS = [one["operationId"] for path in document()["paths"].values() for one in path.values()]
_CONFIG = {
    "checks": {
        # A name may be unknown, an address none, a request refused, an edge without a policy: what fits the document may still be turned down.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "400", "401", "403", "404", "413", "421", "422", "429", "451", "503"]
        },
        # The line of a request, with a query of 16 KiB, is refused before it is read.
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "403", "404", "413", "414", "415", "422"]
        },
    }
}


@cache
def _operations() -> dict[str, Any]:
    described = document()
    for path in described["paths"].values():
        for one in path.values():
            one.pop("security")  # a good token is sent always; tests/http/test_lookup.py sends others
    schema = schemathesis.openapi.from_dict(described, config=SchemathesisConfig.from_dict(_CONFIG))
    return {one.ok().definition.raw["operationId"]: one.ok() for one in schema.get_all_operations()}


@pytest.mark.endurance
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, edge: Edge) -> None:
    """Valid or not, what is asked gets an answer of the document's; names are often those of the world."""
    operation = _operations()[name]
    cases = operation.as_strategy(GenerationMode.POSITIVE)
    if operation.query or operation.body:
        cases |= operation.as_strategy(GenerationMode.NEGATIVE)
    token = TOKENS["reporter"] if name == "send_latency_samples" else TOKENS["viewer"]

    @given(case=cases, known=st.sampled_from(["chat", "web", "records", "nowhere", None]))
    @settings(
        max_examples=examples(60, least=20),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=(Phase.explicit, Phase.generate),
    )
    def holds(case: schemathesis.Case, known: str | None) -> None:
        if name == "route" and known is not None and case.query:
            case.query = {
                **{key: value for key, value in case.query.items() if key == "explain"},
                "service": known,
            }
        case.call_and_validate(
            base_url=f"http://127.0.0.1:{edge.port}",
            headers={"Authorization": f"Bearer {token}"},
            # What is wrong with one look-up of a batch is said in its place.
            excluded_checks=[negative_data_rejection] if name == "route_batch" else [],
        )

    holds()


@pytest.mark.parametrize("explain", ["0", "1"])
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("service=web&client_ip=198.51.100.7", 200),
        ("service=chat&client_ip=81.2.69.142", 200),
        ("service=records&tenant=clinic&client_ip=2001:db8::1", 200),
        ("host=web.demo.test&priority=batch&affinity=x", 200),
        ("service=nowhere", 451),
        ("service=records&data_class=none", 422),
        ("service=none", 404),
        ("service=web&client_ip=x", 400),
    ],
)
def test_each_kind_of_answer(edge: Edge, query: str, explain: str, status: int) -> None:
    """By hand, so that none is left to chance; every field that is answered is described, too."""
    response = httpx.get(f"http://127.0.0.1:{edge.port}/v1/route?{query}&explain={explain}", trust_env=False)
    assert response.status_code == status
    operation = _operations()["route"]
    operation.validate_response(response)
    schema = "Route" if status == 200 else "Refusal"
    assert set(response.json()) <= set(document()["components"]["schemas"][schema]["properties"])


def test_it_is_served(edge: Edge, run_edge: Callable[..., Edge]) -> None:
    """To anybody, on every host that is no service's, before there is a policy."""
    for one in (edge, run_edge(load=False)):
        found = httpx.get(f"http://127.0.0.1:{one.port}/openapi.json", trust_env=False)
        assert (found.status_code, found.json()) == (200, document())
    assert (
        httpx.get(
            f"http://127.0.0.1:{edge.port}/openapi.json", headers={"Host": "web.demo.test"}, trust_env=False
        ).status_code
        == 307
    )


def test_every_code_has_its_status() -> None:
    """A problem's status is one that some operation may end in, but for those that the server gives before it is anybody's."""
    described = {
        status
        for path in document()["paths"].values()
        for one in path.values()
        for status in one["responses"]
    }
    assert {str(status) for status, _ in CODES.values()} - described == {"405"}
