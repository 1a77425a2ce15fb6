"""What lets pages of other origins read gtm's own answers (Fetch standard §3.2), by a browser's rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.model.cors import Cors, answer_fields, preflight_fields
from tests.effort import examples

ORIGINS = ("https://app.example.com", "http://a.test:8080", "null")
METHODS = ("GET", "POST", "DELETE")
FIELDS = ("authorization", "content-type", "x-api-key")


def _may_read(fields: dict[str, str], origin: str, *, credentials: bool) -> bool:
    """Fetch standard §4.9, "CORS check"."""
    said = fields.get("access-control-allow-origin")
    if said is None:
        return False
    if not credentials and said == "*":
        return True
    if said != origin:
        return False
    return not credentials or fields.get("access-control-allow-credentials") == "true"


def _may_send(
    fields: dict[str, str], origin: str, method: str, wanted: set[str], *, credentials: bool
) -> bool:
    """Fetch standard §4.8, "CORS-preflight fetch", steps 7 and on: a wildcard never stands for `authorization`."""
    if not _may_read(fields, origin, credentials=credentials):
        return False
    methods = set(fields.get("access-control-allow-methods", "").split(", "))
    allowed = {one.lower() for one in fields.get("access-control-allow-headers", "").split(", ")}
    if method not in methods and method not in ("GET", "HEAD", "POST"):
        return False
    return wanted <= allowed


CORS = st.builds(
    lambda origins, methods, fields, credentials: Cors(
        tuple(origins), tuple(methods), tuple(fields), credentials and "*" not in origins
    ),
    st.lists(st.sampled_from((*ORIGINS, "*")), min_size=1, unique=True),
    st.lists(st.sampled_from(METHODS), unique=True),
    st.lists(st.sampled_from(FIELDS), unique=True),
    st.booleans(),
)


@settings(max_examples=examples(500))
@given(
    CORS,
    st.sampled_from(ORIGINS),
    st.sampled_from(METHODS),
    st.sets(st.sampled_from(FIELDS)),
    st.booleans(),
)
def test_browsers_do_what_the_service_allows(
    cors: Cors, origin: str, method: str, wanted: set[str], credentials: bool
) -> None:
    """And nothing else."""
    listed = "*" in cors.origins or origin in cors.origins
    assert cors.allows(origin) == listed
    reads = listed and (not credentials or cors.credentials)
    assert _may_read(dict(answer_fields(cors, origin)), origin, credentials=credentials) == reads
    if listed:
        fields = dict(preflight_fields(cors, origin, method, ", ".join(sorted(wanted))))
        safe = method in ("GET", "HEAD", "POST")
        sends = (
            reads
            and (safe or not cors.methods or method in cors.methods)
            and (not cors.fields or wanted <= set(cors.fields))
        )
        assert _may_send(fields, origin, method, wanted, credentials=credentials) == sends


@pytest.mark.parametrize("origin", ORIGINS)
def test_caches_keep_answers_for_pages_apart(origin: str) -> None:
    """Where answers differ by origin they say so, also to one that may not read them."""
    listed = Cors(ORIGINS[:1])
    assert dict(answer_fields(listed, origin))["vary"] == "origin"
    assert "vary" not in dict(answer_fields(Cors(("*",)), origin))
