"""What the documents state of gtm, held against gtm itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gtm.api.app import create_app
from gtm.cli.main import app
from gtm.control.documents import KINDS, PolicyDocument
from gtm.edge import problems
from gtm.storage.session import Database
from tests.docs.blocks import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
API = (ROOT / "docs/api.md").read_text()

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _slug(heading: str) -> str:
    """A heading's anchor, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file, or to a heading in it."""
    text = page.read_text()
    broken = []
    for target in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        found = file.exists()
        if found and anchor:
            found = anchor in {_slug(heading) for heading in _HEADING.findall(file.read_text())}
        if not found:
            broken.append(target)
    assert not broken


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    else:
        for name, child in children.items():
            yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_settings_are_the_ones_there_are() -> None:
    """The table of settings lists exactly the variables that commands read."""
    read = {param.envvar for command in COMMANDS.values() for param in command.params if param.envvar}
    section = (ROOT / "docs/operations.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `GTM_")]
    listed = [name for row in rows for name in re.findall(r"`(GTM_\w+)`", row)]
    assert sorted(listed) == sorted(read)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_commands_are_described(path: tuple[str, ...]) -> None:
    """The command line's page names every command, those of a group at least beside another of its group."""
    text = (ROOT / "docs/cli.md").read_text()
    *group, name = path
    full = re.compile(rf"\bgtm {' '.join(path)}\b")
    beside = re.compile(rf"\bgtm {' '.join(group)}\b.*`{name}\b", re.DOTALL)
    assert full.search(text) or (group and any(map(beside.search, text.split("\n\n"))))


def test_operations_of_control_are_described() -> None:
    """The API's page names every operation of the control API and no path that is none."""
    paths = create_app(Database("postgresql://nobody@127.0.0.1:9/none")).openapi()["paths"]
    slugs = {kind.replace("_", "-") for kind in KINDS}
    for path in paths:
        collection = path.split("/")[2] if path.startswith("/v1/") else ""
        if collection in slugs and path in (f"/v1/{collection}", f"/v1/{collection}/{{name}}"):
            path = f"/v1/{collection}"  # noqa: PLW2901 - every kind has the same operations, described once
        verb = re.fullmatch(r"/v1/regions/\{name\}(:\w+)", path)
        assert f"`{verb[1]}`" in API or f"{verb[0]}`" in API if verb else path in API, path


def test_problems_of_the_edge_are_described() -> None:
    """The table of errors lists exactly the problems that an edge answers, with their statuses."""
    section = API.partition("\n### Errors\n")[2].partition("\n### ")[0]
    rows = [line.split("|") for line in section.splitlines() if re.match(r"\| \d", line)]
    listed = {code: int(row[1]) for row in rows for code in re.findall(r"`(\w+)`", row[2])}
    assert listed == {code: status for code, (status, _) in problems._KINDS.items()}


def test_bodies_are_documents() -> None:
    """The example body of every kind of resource is one that its document accepts."""
    section = API.partition("\n### Resources\n")[2].partition("\n### The whole policy\n")[0]
    parts = re.findall(r"^#### ([^\n]+)\n\n```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    kinds = {title.lower().replace(" ", "_"): json.loads(body) for title, body in parts}
    kinds["tenants"] = kinds["data_classes"] = kinds.pop("tenants_and_data_classes")
    assert set(kinds) == set(KINDS)
    PolicyDocument.model_validate({kind: [{"name": "one", **body}] for kind, body in kinds.items()})
