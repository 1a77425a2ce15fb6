"""Somebody who types a document's examples, beside a demo system."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, Command, difference
from tests.patience import PATIENCE
from tests.system.harness import System, eventually
from tests.tools import tool

_ASKS = re.compile(
    r"curl (?!.* (-X|-d) )|dig |delv |(\S*/)?gtm (route|explain|status|regions (list|show)|dns query) ",
    re.DOTALL,
)
"""Commands that change nothing. They are asked until probes and edges have caught up with the commands before."""
_DEMO = re.compile(r"127\.0\.1\.(?=[1-8]\b)")
"""The first block of the demo world's addresses; a demo beside another stands on a later one."""


def works(block: Block, demo: System, home: Path) -> None:
    """An example works as its document shows it."""
    needed = {word for command in block.commands for word in ("curl", "bash") if f"{word} " in command.text}
    missing = sorted(word for word in needed | {"bash"} if shutil.which(word) is None)
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    if any("delv " in command.text for command in block.commands):
        tool("delv")
    reader = Reader(demo, home)
    _settle(demo)
    before: Command | None = None
    for command in block.commands:
        reader.do(command, before)
        before = command


class Reader:
    """Somebody who types a document's commands in a second terminal, in a folder with `policies` in it."""

    def __init__(self, demo: System, home: Path) -> None:
        self._demo = demo
        self._home = home
        self._exported = home / "exported"
        self._exported.write_text("")
        url = demo.api("GET", "/v1/regions/eu-central").json()["endpoints"][0]["url"]
        self._block = url.removeprefix("http://").rpartition(".")[0] + "."
        (home / ".curlrc").write_text("no-progress-meter\n")  # as at a terminal
        (home / "policies").symlink_to(ROOT / "policies")
        programs = home / "bin"
        programs.mkdir()
        _script(programs / "gtm", '-m gtm.cli "$@"')
        if shutil.which("dig") is None:
            _script(programs / "dig", f'{ROOT / "tests/docs/dig.py"} "$@"')
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GTM_")}
        self._environment = {
            **clean,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "COLUMNS": "200",
            "CURL_HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "GTM_CONTROL_URL": demo.control,
            "GTM_EDGE_URL": demo.edge,
            "GTM_DATA_DIR": str(demo.data_dir),
            "GTM_TOKEN": demo.token,
        }

    def do(self, command: Command, before: Command | None = None) -> None:
        """Run a command, and compare."""
        begun = time.monotonic()
        while True:
            wrong = self._wrong(command)
            if wrong is None:
                return
            waited = time.monotonic() - begun
            fades = "gtm top " in command.text and before is not None
            if not (fades or _ASKS.match(command.text)) or waited > 3 * PATIENCE:
                raise AssertionError(f"$ {command.text}\n{wrong}")
            if fades:  # what it shows is of the last seconds, and this machine was slow to ask: the traffic comes again
                self._wrong(before)
            else:
                time.sleep(min(0.2 + waited / 4, 5.0))

    def _wrong(self, command: Command) -> str | None:
        """What is wrong with a command's exit code or output. What it exports stays for the next."""
        exported = self._exported
        script = f"set -o pipefail\n. {exported}\n{self._here(command.text)}\ncode=$?\nexport -p > {exported}\nexit $code\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != command.code:
            return f"exits with {done.returncode}, not {command.code}:\n{done.stdout}"
        return difference(command.shown, self._there(done.stdout))

    def _here(self, text: str) -> str:
        """A command with the ports and addresses of this demo."""
        text = text.replace("http://127.0.0.1:8080", self._demo.control)
        text = text.replace("http://127.0.0.1:8081", self._demo.edge)
        text = text.replace("-p 5300", f"-p {self._demo.dns_port}").replace(".venv/bin/gtm", "gtm")
        text = text.replace("--data-dir gtm-data", f"--data-dir {self._demo.data_dir}")
        return _DEMO.sub(self._block, text)

    def _there(self, text: str) -> str:
        """Output as it would be on the default ports and addresses."""
        text = text.replace(self._demo.control, "http://127.0.0.1:8080")
        text = text.replace(self._demo.edge, "http://127.0.0.1:8081")
        return text.replace(self._block, "127.0.1.")


def _script(path: Path, arguments: str) -> None:
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _settle(demo: System) -> None:
    """Bring back what an example took down; wait until the edge answers from that and sees every region up."""
    for region in demo.api("GET", "/v1/regions").json()["items"]:
        demo.demo("restore", region["name"])
        if region["admin_state"] != "active":
            demo.api("POST", f"/v1/regions/{region['name']}:activate").raise_for_status()

    def settled() -> bool:
        status = demo.api("GET", "/v1/status").json()
        health = demo.api("GET", "/v1/health").json()["regions"]
        up = all(region["status"] == "up" and region["admin_state"] == "active" for region in health)
        explained = demo.route(service="web", client_ip="8.8.8.8", explain="1").json()
        usable = all(candidate["excluded"] is None for candidate in explained["candidates"])
        return up and usable and status["sync"]["state"] == "IN_SYNC"

    eventually(settled, "every region is up and every edge in sync")
