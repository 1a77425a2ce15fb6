"""What children inherit, and where tokens go in the clear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.environment import inherited
from gtm.transport import in_the_clear

SECRETS = {
    "GTM_TOKEN": "gtm_x",
    "GTM_DATABASE_URL": "postgresql://gtm:secret@db/gtm",
    "AWS_SECRET_ACCESS_KEY": "s",
    "PGPASSWORD": "s",
    "DATABASE_URL": "s",
}
ORDINARY = {"PATH": "/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "PYTHONPATH": "/x", "SSL_CERT_FILE": "/y"}


def test_children_inherit_what_is_listed() -> None:
    """Programs, language, certificates; of gtm's own nothing."""
    given_ = {**SECRETS, **ORDINARY, "GTM_REGION": "eu"}
    assert inherited(given_) == ORDINARY


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_nothing_else_gets_through(environment: dict[str, str]) -> None:
    """Whatever a machine's other variables are called."""
    assert inherited({**environment, **SECRETS}).items() <= {**environment}.items()
    assert not {*inherited({**environment, **SECRETS})} & {*SECRETS}


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://control.example.com", True),
        ("http://10.0.0.1:8080", True),
        ("http://0.0.0.0:8080", True),
        ("http://[2001:db8::1]", True),
        ("http://localhost.example.com", True),
        ("http://127.0.0.1.example.com", True),
        ("HTTP://control.example.com", True),
        ("https://control.example.com", False),
        ("http://127.0.0.1:8080", False),
        ("http://127.8.9.1", False),
        ("http://[::1]:8080", False),
        ("http://localhost:8080", False),
        ("http://LOCALHOST", False),
    ],
)
def test_http_to_this_machine_alone_is_no_risk(url: str, clear: bool) -> None:
    """Everything else that is http can be read on the way."""
    assert in_the_clear(url) is clear
