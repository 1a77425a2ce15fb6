"""Request lines that no honest client sends, at an edge as it runs."""

from __future__ import annotations

from collections.abc import Callable

from tests import request_lines
from tests.http.world import Edge


def test_odd_request_lines(run_edge: Callable[..., Edge]) -> None:
    """Each is answered or refused, HEAD without a body, and none is a bug's (RFC 9112 §3)."""
    assert request_lines.wrong(("127.0.0.1", run_edge().port)) == {}
