"""What pages load that others wrote is what npm had, with its licence; and how files are served."""

from __future__ import annotations

import json
from hashlib import sha256

from gtm.dashboard.static_files import url
from tests.api.conftest import Api
from tests.release.vendor import HOME, LIST, PACKAGES


def test_vendored_files_are_those_that_were_fetched() -> None:
    """Each is listed with its package, version, licence and checksum; none is there that is not."""
    listed = json.loads((HOME / LIST).read_text())
    assert [(one["name"], one["version"], one["integrity"]) for one in listed] == [
        (one.name, one.version, one.integrity) for one in PACKAGES
    ]
    files = {name: told["sha256"] for one in listed for name, told in one["files"].items()}
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in HOME.iterdir() if path.name != LIST}
    assert found == files
    for one in listed:
        assert any(name.endswith("LICENSE") for name in one["files"]), one["name"]


def test_files_are_kept_for_good_and_compressed(api: Api) -> None:
    """Under the name that changes with them; under another they are served, and kept by nobody."""
    path = url("gtm.css")
    answer = api.anonymous.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    plain = api.anonymous.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text
    old = api.anonymous.get("/static/0000000000000000/gtm.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    for bad in (
        "/static/x/nothing.js",
        "/static/x/../templates/layout.html",
        "/static/x/%2e%2e/app.py",
        "/static/x/vendor/VENDORED.txt",
    ):
        assert api.anonymous.get(bad).status_code == 404
