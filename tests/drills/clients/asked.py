"""Who asks, where they are installed, and the world in which they do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import effort
from tests.drills.clients.servers import BGE, LLAMA, WHISPER, chat_server, other_server, serving
from tests.ports import free_port
from tests.system.balancers import lone_balancer
from tests.system.harness import eventually

HERE = Path(__file__).parent
HOME = Path(os.environ.get("GTM_CLIENTS") or Path.home() / ".cache" / "gtm-clients")
"""Outside of the repository: what is in there is none of its dependencies."""
PYTHON = HOME / "bin" / "python"
ROUNDS = 6
"""Of each case. What goes to one of two servers at random is right six times in a row in one of 64."""
LIMITED, FREE = "key-of-acme", "key-of-nobody"
"""The keys that clients show (`asking.py`)."""
NOT_YET: frozenset[str] = frozenset()
"""Cases that are known to fail."""
PATIENCE = 540.0
"""Seconds that a client has for all of its cases."""
_AGAIN = "`python -m tests.drills.clients` installs it"


@dataclass(frozen=True)
class Result:
    """What came of a case; `wrong` says what was wrong first."""

    right: int
    of: int
    wrong: str

    @property
    def cell(self) -> str:
        """For a table."""
        return "yes" if self.right == self.of else f"**{self.right} of {self.of}**"


@dataclass(frozen=True)
class Client:
    """One client: the package that it is, and the script that asks by it."""

    name: str
    package: str
    script: str
    program: str = ""
    """Of the system's, where it is no package."""

    def missing(self) -> str | None:
        """What is not installed, and what installs it; None: all is there."""
        if self.program:
            return None if shutil.which(self.program) else f"{self.program} is not installed"
        if self.script.endswith(".mjs"):
            there = shutil.which("node") is not None and (HOME / "node_modules" / self.package).is_dir()
        else:
            there = self._python() is not None
        return None if there else f"{self.package} ({self.name}) is not installed: {_AGAIN}"

    def version(self) -> str:
        """Of what is installed."""
        if self.program:
            return subprocess.check_output([self.program, "--version"], text=True).split()[1]
        if self.script.endswith(".mjs"):
            document = json.loads((HOME / "node_modules" / self.package / "package.json").read_text())
            return str(document["version"])
        code = f"from importlib.metadata import version; print(version({self.package!r}))"
        return subprocess.check_output([self._python() or "", "-c", code], text=True).strip()

    def command(self) -> list[str]:
        """That asks."""
        if self.script.endswith(".mjs"):
            more = ["--experimental-websocket"] if self.program else []  # before Node 22 it is one
            return [shutil.which("node") or "", *more, str(HERE / self.script)]
        return [sys.executable if self.program else self._python() or "", str(HERE / self.script)]

    def _python(self) -> str | None:
        """One that has the package: the clients' own, or for openai the development environment's."""
        for one in (str(PYTHON), sys.executable):
            if Path(one).exists():
                code = f"import sys, importlib.util as u; sys.exit(u.find_spec({self.package.replace('-', '_')!r}) is None)"
                if subprocess.run([one, "-c", code], check=False).returncode == 0:
                    return one
        return None


CLIENTS = (
    Client("openai", "openai", "with_openai.py"),
    Client("anthropic", "anthropic", "with_anthropic.py"),
    Client("litellm", "litellm", "with_litellm.py"),
    Client("langchain-openai", "langchain-openai", "with_langchain.py"),
    Client("node", "openai", "with_node.mjs"),
)
PLAIN = (
    Client("requests", "requests", "with_requests.py"),
    Client("aiohttp", "aiohttp", "with_aiohttp.py"),
    Client("curl", "", "with_curl.py", "curl"),
)
"""Those that know nothing of models."""
OTHER_WAYS = tuple(
    one for one in (*CLIENTS, *PLAIN) if effort.ALL or one.name not in ("litellm", "langchain-openai")
)
"""Who is tried on every way to a region. Those two send what openai's does and take 10 s of a core: `make drills` tries them on one way."""
SOCKETS = (
    Client("websockets", "websockets", "with_websockets.py"),
    Client("node", "", "with_websocket.mjs", "node"),
)
"""Of WebSockets."""


def install() -> None:
    """Make the clients' environment, or bring it to the versions that are written here.

    Raises:
        subprocess.CalledProcessError: something could not be installed.
    """
    if not PYTHON.exists():
        venv.create(HOME, with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
    npm = shutil.which("npm")
    if npm is not None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, HOME)
        subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=HOME, check=True
        )


def balancer_document(chat: str, other: str) -> dict[str, Any]:
    """A balancer's file: the two servers, and a tenant that may ask once in a long time."""
    key = hashlib.sha256(LIMITED.encode()).hexdigest()
    return {
        "service": "chat",
        "backends": [
            {"url": chat, "slots": 4, "models": [LLAMA]},
            {"url": other, "slots": 4, "models": [BGE, WHISPER]},
        ],
        "checks": {"scrape": None, "health": {"timeout": 30}},  # a busy machine is no server that is down
        "admission": {"tenants": {"acme": {"requests_per_second": 0.001, "keys": [key]}}},
    }


def ask_all(folder: Path, clients: Sequence[Client]) -> dict[str, dict[str, Result]]:
    """What comes of each client's cases; by its name and the case's.

    After each client nothing may be in flight any more: that is the case `no slot leaks`.
    """
    ports = {"fra": free_port(), "iad": free_port()}
    found: dict[str, dict[str, Result]] = {}
    with serving(chat_server(), other_server()) as (chat, other):
        document = balancer_document(chat, other)
        file = folder / "balancer.yaml"
        file.write_text(json.dumps(document))
        with lone_balancer(folder, "fra", ports, "--file", str(file)) as balancer:
            for client in clients:
                found[client.name] = ask(client, balancer.url, chat, balancer.in_flight)
    return found


def ask(
    client: Client,
    base: str,
    chat: str,
    in_flight: Callable[[], int],
    *,
    within: Sequence[str] = (),
    without: Sequence[str] = (),
) -> dict[str, Result]:
    """What comes of a client's cases; by their names.

    Args:
        client: who asks.
        base: where its paths begin.
        chat: the chat server, which is asked what it has seen.
        in_flight: how many requests a balancer has.
        within: a command that runs the client's.
        without: cases that are not tried.
    """
    world = {
        "BASE": base,
        "SERVER": chat,
        "ROUNDS": str(ROUNDS),
        "WITHOUT": ",".join(without),
        "PACKAGES": str(HOME),
        # What would ask the net for anything else.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
    }
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [*within, *client.command()],
        env={**kept, **world},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{client.name}: {done.stderr[-3000:]}")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    found = {one["case"]: Result(one["right"], one["of"], one["wrong"]) for one in told}
    try:
        eventually(lambda: in_flight() == 0, "nothing is in flight any more")
    except AssertionError as error:
        found["no slot leaks"] = Result(0, 1, str(error))
    else:
        found["no slot leaks"] = Result(1, 1, "")
    return found
