"""A form that is refused for where it comes from: whoever set a proxy up reads what is missing."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from gtm import options
from gtm.dashboard.security import elsewhere


def _request(**headers: str) -> Request:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": "/sign-in",
            "scheme": "http",
            "query_string": b"",
            "server": ("127.0.0.1", 8080),
            "headers": given,
        }
    )


@pytest.mark.parametrize(
    ("url", "host", "origin", "ours"),
    [
        (None, "gtm.example.com", "http://gtm.example.com", True),
        (None, "127.0.0.1:8080", "https://gtm.example.com", False),  # a proxy that asks by another name
        ("https://gtm.example.com", "127.0.0.1:8080", "https://gtm.example.com", True),
        ("https://gtm.example.com", "127.0.0.1:8080", "http://gtm.example.com", False),
        ("https://gtm.example.com", "127.0.0.1:8080", "https://evil.example", False),
    ],
)
def test_a_refused_form_says_what_to_set(url: str | None, host: str, origin: str, *, ours: bool) -> None:
    """It names where the form was sent from, where this is, and the setting; ours are told nothing."""
    said = elsewhere(_request(host=host, origin=origin), url)
    if ours:
        assert said == ""
        return
    for words in ("another site", f"`{origin}`", f"`{url or f'http://{host}'}`", "GTM_DASHBOARD_URL"):
        assert words in said


def test_what_is_shown_is_short() -> None:
    """A browser's Origin may be as long as a head is."""
    assert len(elsewhere(_request(host="a" * 9000, origin="https://" + "b" * 9000), None)) < 700


@pytest.mark.parametrize("url", ["https://example.com/gtm", "https://example.com/gtm/", "http://h:8080/a/b"])
def test_the_dashboard_is_at_the_root(url: str) -> None:
    """A path before it is refused at the start: its pages link to each other from the root."""
    with pytest.raises(ValueError, match=r"has a path.*a name of its own"):
        options.site_url(url)


@pytest.mark.parametrize("url", ["https://example.com", "https://example.com/", "http://h:8080/", ""])
def test_roots_are_taken(url: str) -> None:
    """With a slash at the end or without, and nothing at all."""
    assert options.site_url(url) == (url.rstrip("/") or None)
