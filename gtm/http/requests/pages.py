"""Entries of the edge's route table: what answers a path, by which methods, and what it is counted as."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gtm.http.answers.routes import Routes
    from gtm.http.problems import Headers, Response
    from gtm.http.requests.incoming import Incoming, Receive, Send


@dataclass(frozen=True, slots=True)
class Page:
    """One of the edge's pages.

    `label` is its name in the metrics. `answer` makes the response from a request's head; where it is None, `take` reads the
    body, and returns None if the client is gone or has had its answer in pieces. `methods` are those it takes; OPTIONS is
    answered with `preflight`. Errors carry `error_headers`: those that browsers want before a page of another origin may read
    them.
    """

    label: str
    answer: Callable[[Incoming, Routes], Response] | None = None
    take: Callable[[Incoming, Receive, Send], Awaitable[Response | None]] | None = None
    methods: tuple[str, ...] = ("GET", "HEAD")
    preflight: Response | None = None
    error_headers: Headers = ()


OTHER = Page("other")
"""What no page answers: a path that gtm has not, or a head that cannot be read."""
REDIRECT = Page("redirect")
"""The paths of services' own hosts, and those below `/r/`."""
