"""The examples of docs/client.md, in their order, against a control with the API tests' world."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_examples(world: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each runs, and prints what the document says."""
    monkeypatch.setenv("GTM_CONTROL_URL", world.url)
    monkeypatch.setenv("GTM_TOKEN", TOKENS[Role.ADMIN])
    blocks = _BLOCK.findall(Path("docs/client.md").read_text())
    assert len(blocks) > 8
    names: dict[str, Any] = {"__name__": "example"}
    for number, (kind, text) in enumerate(blocks):
        if kind == "text":
            continue
        said = StringIO()
        with redirect_stdout(said):
            exec(compile(text, f"docs/client.md, block {number + 1}", "exec"), names)  # noqa: S102 - that is what is tested
        following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        shown = following[1] if following[0] == "text" else ""
        assert said.getvalue() == shown, f"block {number + 1}:\n{text}"
