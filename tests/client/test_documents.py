"""The examples of docs/client.md, in their order, against a control with the API tests' world, and an edge with that of HTTP's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api
from tests.http.conftest import run_edge
from tests.http.world import Edge

__all__ = ["run_edge"]

_BLOCK = re.compile(r"^```(python|text|sh|js|go)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_EDGE = "http://127.0.0.1:8081"


def blocks() -> list[tuple[str, str]]:
    """Language and text of each."""
    return _BLOCK.findall(Path("docs/client.md").read_text())


def test_python(world: Api, run_edge: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each runs, and prints what the document says."""
    monkeypatch.setenv("GTM_CONTROL_URL", world.url)
    monkeypatch.setenv("GTM_TOKEN", TOKENS[Role.ADMIN])
    edge = f"http://127.0.0.1:{run_edge(open_lookups=True).port}"
    found = [*blocks(), ("", "")]
    assert len(found) > 12
    names: dict[str, Any] = {"__name__": "example"}
    for number, (kind, text) in enumerate(found):
        if kind != "python":
            continue
        said = StringIO()
        with redirect_stdout(said):
            code = compile(text.replace(_EDGE, edge), f"docs/client.md, block {number + 1}", "exec")
            exec(code, names)  # noqa: S102 - that is what is tested
        following, shown = found[number + 1]
        assert said.getvalue() == (shown if following == "text" else ""), f"block {number + 1}:\n{text}"


@pytest.mark.parametrize(
    "kind", ["sh", *(pytest.param(one, marks=pytest.mark.drill) for one in ("js", "go"))]
)
def test_other_languages(kind: str, run_edge: Callable[..., Edge], tmp_path: Path) -> None:
    """Each says the region, and ends with an error where there is none."""
    command = {"sh": ["sh"], "js": ["node"], "go": ["go", "run"]}[kind]
    if shutil.which(command[0]) is None:
        assert not os.environ.get("CI"), f"CI needs `{command[0]}`"
        pytest.skip(f"`{command[0]}` is not installed")
    (text,) = [text for language, text in blocks() if language == kind]
    edge = run_edge(open_lookups=True)
    served = text.replace(_EDGE, f"http://127.0.0.1:{edge.port}")
    for number, source in enumerate((served, served.replace("chat", "nowhere"))):
        file = tmp_path / f"example{number}.{'mjs' if kind == 'js' else kind}"
        file.write_text(source)
        done = subprocess.run(
            [*command, str(file)],
            cwd=tmp_path,
            env={**os.environ, "GOFLAGS": "-mod=mod", "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == (number == 0), done.stderr
        assert ("eu-central" if number == 0 else "refused_residency") in done.stdout + done.stderr
