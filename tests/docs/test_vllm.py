"""docs/vllm.md as somebody would type it, with a server in vLLM's place that answers with what a vLLM 0.32 said."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, difference, runnable
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.system.harness import Process, System, eventually

pytestmark = [pytest.mark.system, pytest.mark.drill]
PAGE = "docs/vllm.md"
_FILE = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class _Typist:
    """Types the page's commands in a folder, on ports that are free in place of the page's.

    `named` is what the page's ports are here.
    """

    def __init__(self, home: Path, named: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._home = home
        self._named = named
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GTM_")}
        self.environment = {**clean, **environment, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        for path, text in _FILE.findall((ROOT / PAGE).read_text()):
            (home / path).parent.mkdir(exist_ok=True)
            (home / path).write_text(self._here(text))

    def _here(self, text: str) -> str:
        return re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: self._named[found[0]], text)

    def _there(self, text: str) -> str:
        for page, here in self._named.items():
            text = text.replace(f"127.0.0.1:{here}", f"127.0.0.1:{page}")
        return text

    def type(self, mark: str, *, until: bool = False) -> None:
        """All commands of blocks with this mark; `until`: what is shown comes sooner or later."""
        for block in runnable(PAGE, mark):
            for command in block.commands:
                said = ""

                def right(
                    text: str = command.text, shown: str = command.shown, code: int = command.code
                ) -> bool:
                    nonlocal said
                    script = f"set -o pipefail\n{self._here(text)}".replace(
                        "gtm ", f"{sys.executable} -m gtm.cli "
                    )
                    done = subprocess.run(
                        ["bash", "-c", script],
                        cwd=self._home,
                        env=self.environment,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                        timeout=PATIENCE,
                        check=False,
                    )
                    said = f"$ {text}\nexits with {done.returncode}\n{done.stdout}"
                    wrong = difference(shown, self._there(done.stdout))
                    said += wrong or ""
                    return done.returncode == code and wrong is None

                if until:
                    try:
                        eventually(right, f"{block}: {command.text}")
                    except AssertionError as error:
                        raise AssertionError(f"{error}\n{said}") from None
                else:
                    assert right(), said
                print(said)

    def start(self, mark: str, log: Path, **environment: str) -> Process:
        """Start the one command of the block with this mark."""
        (block,) = runnable(PAGE, mark)
        *told, _, arguments = block.commands[0].text.partition("gtm ")
        given = dict(one.split("=") for one in shlex.split(told[0]))
        given = {name: str(self._home / value) for name, value in given.items()}
        words = [str(self._home / one) if one.endswith(".yaml") else one for one in shlex.split(arguments)]
        return Process(
            [*words, "--data-dir", str(self._home / "balancer")],
            log,
            {**self.environment, **given, **environment},
        )


def test_the_page_is_true(tmp_path: Path) -> None:
    """Its policy, its balancer's file and its commands do what it shows, up to the engine's end."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "tests.docs.vllm", str(port)])
    (serve,) = runnable(PAGE, "serve")
    words = shlex.split(serve.commands[0].text)
    assert words[:4] == ["gtm", "serve", "--data-dir", "gtm-data"]
    running = System(tmp_path / "gtm-data", *words[4:])
    balancer = None
    try:
        running.wait()
        ports = {
            "8080": running.control.rpartition(":")[2],
            "8081": running.edge.rpartition(":")[2],
            "8088": str(free_port()),
            "8089": str(free_port()),
            "8301": str(port),
        }
        told = {"GTM_CONTROL_URL": running.control, "GTM_EDGE_URL": running.edge, "GTM_TOKEN": running.token}
        typist = _Typist(tmp_path, ports, told)
        typist.type("before")
        balancer = typist.start(
            "balancer",
            tmp_path / "balancer.log",
            GTM_BALANCER_PORT=ports["8088"],
            GTM_ADMIN_PORT=ports["8089"],
            GTM_TOKEN="",
        )
        typist.type("run", until=True)
        server.kill()
        server.wait()
        typist.type("down", until=True)
    finally:
        server.kill()
        if balancer is not None and balancer.popen.poll() is None:
            balancer.stop()
        running.process.stop()
