"""Any address that somebody may type, or have others follow: never an error of ours, and nothing in a page that runs."""

from __future__ import annotations

import random
import re
from urllib.parse import quote

import pytest

from gtm.core.model.access import Role
from gtm.dashboard.pages import routes
from tests.api.conftest import Api
from tests.dashboard.conftest import People, assert_inert
from tests.effort import examples

HOSTILE = (
    "",
    "\0",
    "\u2028\u2029\u202e\ufeff",
    "<script>alert(1)</script>",
    "\"' onmouseover=alert(1) x='",
    "{{7*7}}{% raw %}",
    "../../etc/passwd",
    "//evil.example",
    "javascript:alert(1)",
    "%",
    "%25%00",
    "9" * 400,
    "-1",
    "1e400",
    "nan",
    "0x10",
    "\u0661\u0662",
    "2026-02-30",
    "9999-12-31T23:59:59Z",
    "0001-01-01",
    "a" * 3000,
    "'; DROP TABLE audit; --",
    "[[[[[[",
    '{"a": 1}',
    "(a+)+$",
    "\ud7ff\U0010ffff",
    "now",
    "chat",
    "eu-west",
    "true",
)
NAMES = (
    *("service", "tenant", "data_class", "priority", "country", "client", "q", "kind", "search", "cursor", "after", "since", "until", "who"),
    *("action", "target", "forced", "traffic", "preview", "d", "as", "at", "over", "host", "place", "lat", "lon", "zone", "ended", "region", "day"),
)  # fmt: skip


def _paths() -> list[str]:
    return sorted(
        {route.path for route in routes() if "GET" in (route.methods or ()) and "/live" not in route.path}
    )


@pytest.mark.endurance
def test_pages_take_anything(world: Api, people: People) -> None:
    """With any text in place of names, and in any parameter."""
    chosen, person = random.Random(1), people(Role.ADMIN)
    for path in _paths() * examples(24, 3):
        filled = re.sub(r"\{[^}]*\}", lambda _: quote(chosen.choice(HOSTILE), safe="") or "x", path)
        query = {name: chosen.choice(HOSTILE) for name in chosen.sample(NAMES, chosen.randint(0, 5))}
        answer = person.client.get(filled, params=query, headers={"Accept": "text/html"})
        assert answer.status_code != 500, (answer.url, answer.text[-2000:])
        if answer.headers["content-type"].startswith("text/html"):
            assert_inert(answer.text)
