"""Real clients show why an edge refuses: what `str` of their exception says, for each status that an edge refuses with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from ipaddress import ip_network

import pytest

from gtm.core.policy.edges import EdgePlace
from tests.drills.clients.asked import CLIENTS, HERE, Client
from tests.http.conftest import run_edge
from tests.http.test_misdirected import GERMAN, _bound
from tests.http.world import Edge

__all__ = ["run_edge"]

pytestmark = pytest.mark.drill
_TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    421: "invalid_request_error",
    422: "invalid_request_error",
    451: "permission_error",
    503: "overloaded_error",
}
"""Status → the type that Anthropic's has."""


@pytest.mark.parametrize("client", CLIENTS[:2], ids=lambda client: client.name)
def test_a_client_says_why_it_is_refused(client: Client, run_edge: Callable[..., Edge]) -> None:
    """The status is that of the refusal, and its reason is in the exception's text."""
    missing = client.missing()
    if missing:
        pytest.skip(missing)
    edge, empty = run_edge(), run_edge(load=False)
    outside = run_edge(load=False, place=EdgePlace("US"), trusted_proxies=(ip_network("127.0.0.0/8"),))
    outside.load(change=_bound)
    cases = [
        (edge, "/r/nowhere", {}, 451, "residency rules"),
        (edge, "/r/none", {}, 404, "`none`"),
        (edge, "", {"host": "none.demo.test"}, 404, "none.demo.test"),
        (edge, "/r/web", {"x-gtm-tenant": "nobody"}, 422, "`nobody`"),
        (edge, "/r/web", {"x-gtm-priority": "soon"}, 400, "X-GTM-Priority"),
        (empty, "/r/web", {}, 503, "no policy"),
        (outside, "", {"host": "chat.demo.test", "x-forwarded-for": GERMAN}, 421, "gdpr"),
    ]
    asked = [(f"http://127.0.0.1:{one.port}{path}", headers) for one, path, headers, *_ in cases]
    done = subprocess.run(
        [client.command()[0], HERE / "with_refusals.py"],
        env={**os.environ, "CLIENT": client.package, "CASES": json.dumps(asked), "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(cases), done.stderr
    for found, (_, _, _, status, reason) in zip(told, cases, strict=True):
        print(found)
        assert found["status"] == status
        assert reason in found["says"]
        assert client.package != "anthropic" or found["type"] == _TYPES[status]
