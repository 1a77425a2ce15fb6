"""Whole systems under test: real processes on free ports, killed and restarted as operators and accidents do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dns.edns
import dns.message
import dns.query
import dns.rdatatype
import httpx

from tests.patience import PATIENCE


def eventually(
    check: Callable[[], object],
    what: str,
    patience: float = PATIENCE,
    every: float = 0.05,
    of: Iterable[Process] = (),
) -> None:
    """Wait until a check is true, asked `every` so many seconds; a check that raises an HTTP or DNS error is not true yet.

    `of`: the processes that it depends on: if one has ended, waiting is over, and what they printed is told.
    """
    deadline = time.monotonic() + patience
    last: object = None
    while time.monotonic() < deadline and all(one.popen.poll() is None for one in of):
        try:
            last = check()
            if last:
                return
        except (httpx.HTTPError, dns.exception.DNSException, OSError) as error:
            last = error
        time.sleep(every)
    told = "".join(f"\n{one.log}, which has {one.popen.poll()} as its exit code:\n{one.output}" for one in of)
    raise AssertionError(f"not within {patience:.0f} s: {what}; last: {last!r}{told}")


_TOLD = {"COLUMNS": "200", "GTM_PROBE_ALLOW": "127.0.0.0/8,::1"}
"""Tests' regions are on this machine."""


_OF = "PYTHON_GTM_TEST_OF"
"""What tells a test's processes from others, workers of workers' agents included: children inherit names like this one."""


def marked(data_dir: Path | str) -> dict[str, str]:
    """What a process on a data directory has in its environment for `remains` to find it and what it starts."""
    return {_OF: str(data_dir)}


class Process:
    """A `gtm` process with its output kept."""

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.log = log
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GTM_")}
        if "--data-dir" in arguments:
            clean |= marked(arguments[arguments.index("--data-dir") + 1])
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [python, "-m", "gtm.cli", *arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**clean, **_TOLD, **(environment or {})},
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """All it has printed so far."""
        return self.log.read_text(errors="replace")

    @property
    def error(self) -> str:
        """What it says of its end: the last `error:` line. An edge of an earlier start goes on writing below it."""
        return [line for line in self.output.splitlines() if line.startswith("error: ")][-1]

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def end(self, patience: float = PATIENCE) -> int:
        """Wait for its end; its exit code."""
        return self.popen.wait(patience)

    def stop(self) -> int:
        """SIGTERM, and wait."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGTERM)
        try:
            return self.end()
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise


class System:
    """One running `gtm serve`."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        self.arguments = [
            *("serve", "--data-dir", str(data_dir)),
            *("--control-port", "0", "--edge-port", "0", "--dns-port", "0", *arguments),
        ]
        self.process = self.start()

    def start(self) -> Process:
        """Start a process with these settings."""
        return Process(self.arguments, self.data_dir.with_suffix(".log"))

    def revived(self) -> System:
        """Itself, ready: started again if a test has ended it."""
        if self.process.popen.poll() is not None:
            self.process = self.start()
            self.wait()
        return self

    def wait(self) -> System:
        """Until it says that it is ready."""

        def ready() -> bool:
            if self.process.popen.poll() is not None:
                raise AssertionError(f"gtm serve ended:\n{self.process.output}")
            return self._facts().get("process") == self.process.popen.pid

        try:
            eventually(ready, "gtm serve is ready", 120.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.process.output}") from error
        facts = self._facts()
        self.control, self.edge, self.dns_port = (
            facts["control"],
            facts["edge"],
            int(facts["dns"].rpartition(":")[2]),
        )
        return self

    def _facts(self) -> dict[str, Any]:
        """What it wrote for scripts; empty before (a file of another process that was killed may be there)."""
        try:
            facts: dict[str, Any] = json.loads((self.data_dir / "serve.json").read_text())
        except (OSError, ValueError):
            return {}
        return facts

    @property
    def token(self) -> str:
        """The first admin token, from what was printed."""
        found = re.search(r"GTM_TOKEN=(gtm_\S+)", self.process.output)
        assert found is not None, self.process.output
        return found[1]

    def api(self, method: str, path: str, **arguments: object) -> httpx.Response:
        """Call the control API as admin."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(method, self.control + path, headers=headers, timeout=20, **arguments)  # type: ignore[arg-type]

    def route(self, **parameters: str) -> httpx.Response:
        """Look a route up at the edge."""
        return httpx.get(f"{self.edge}/v1/route", params=parameters, timeout=10)

    def region(self, **parameters: str) -> str | None:
        """The region a look-up names."""
        return self.route(**parameters).json().get("region")

    def redirect(self, host: str, path: str, client: str) -> httpx.Response:
        """Ask the edge as a client of a host name, behind a proxy that says who it is."""
        headers = {"Host": host, "X-Forwarded-For": client}
        return httpx.get(self.edge + path, headers=headers, follow_redirects=False, timeout=10)

    def resolve(
        self, name: str, subnet: str | None = None, kind: str = "A", *, tcp: bool = False
    ) -> dns.message.Message:
        """Ask the edge's DNS, with a client subnet."""
        options = [dns.edns.ECSOption(*_subnet(subnet))] if subnet else []
        query = dns.message.make_query(name, kind, use_edns=0, options=options)
        ask = dns.query.tcp if tcp else dns.query.udp
        return ask(query, "127.0.0.1", port=self.dns_port, timeout=5)

    def addresses(self, name: str, subnet: str | None = None) -> list[str]:
        """The A records of an answer."""
        answer = self.resolve(name, subnet).answer
        return [item.address for rrset in answer if rrset.rdtype == dns.rdatatype.A for item in rrset]

    def demo(self, action: str, region: str) -> None:
        """What `gtm demo fail|restore|capacity REGION` asks of the demo's world; the documents' examples type the commands."""
        world = json.loads((self.data_dir / "demo.json").read_text())
        httpx.post(f"{world['switch']}/{region}/{action}", timeout=20, trust_env=False).raise_for_status()

    def processes(self, part: str) -> list[int]:
        """Process ids in this system's tree whose command line contains `part`."""
        return [pid for pid in descendants(self.process.popen.pid) if part in command_line(pid)]


def _subnet(text: str) -> tuple[str, int]:
    address, _, length = text.partition("/")
    return address, int(length)


def command_line(pid: int) -> str:
    """A process's command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(root: int) -> list[int]:
    """A process's children, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped by a signal."""
    states = [
        path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def remains(data_dir: Path) -> list[int]:
    """The processes of gtm on a data directory, whoever's children they are, and whether they answer or hang.

    Agents show nobody their environment; they hold the lock.
    """
    found = set()
    with suppress(OSError, ValueError):
        found.add(int((data_dir / "edge.lock").read_text()))
    mark = f"\0{_OF}={data_dir}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in b"\0" + path.read_bytes():
                found.add(int(path.parent.name))
    return [pid for pid in sorted(found) if alive(pid) and "-m gtm." in command_line(pid)]


def kill_remains(data_dir: Path) -> None:
    """Leave no worker behind that has lost its agent, nor an agent that has lost its supervisor."""
    while found := remains(data_dir):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


@contextmanager
def system(data_dir: Path, *arguments: str) -> Iterator[System]:
    """A `gtm serve`, ready, and stopped at the end whatever happened."""
    running = System(data_dir, *arguments)
    try:
        yield running.wait()
    finally:
        children = descendants(running.process.popen.pid)
        if running.process.popen.poll() is None:
            running.process.signal(signal.SIGTERM)
            try:
                running.process.end(30)
            except subprocess.TimeoutExpired:
                running.process.popen.kill()
        for pid in children:
            if alive(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        kill_remains(data_dir)
