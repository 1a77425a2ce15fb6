"""The documentation page in a real browser."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import Api
from tests.tools import tool

pytestmark = pytest.mark.drill


def test_page_shows_every_operation(api: Api, tmp_path: Path) -> None:
    """Chromium renders every operation, under the page's own content policy and without a console error."""
    command = [
        tool("chromium-headless-shell"),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=20000",
        "--enable-logging=stderr",
        "--dump-dom",
        f"{api.url}/docs",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    paths = httpx.get(f"{api.url}/openapi.json").json()["paths"]
    operations = {item["operationId"] for path in paths.values() for item in path.values()}
    shown = set(re.findall(r'id="operations-(?!tag-)[\w-]+?-([a-z_]+)"', done.stdout))
    assert shown == operations
    assert not re.findall(r".*(?:ERROR|WARNING):CONSOLE.*", done.stderr)
    assert not re.findall(r'(?:src|href)="(?!/docs/|#)[^"]*//[^"]*"', done.stdout), (
        "nothing is loaded from elsewhere"
    )
