"""What becomes of requests when a real vLLM's engine or API server is stopped or killed: `python tests/bench/vllm_bench.py --vllm DIR [--only gtm …] [--rounds 3]`.

Two vLLM as docs/vllm.md makes one (DIR is its virtual environment), behind one balancer at a time, set up as in `frozen_bench.py`; asked by `vllm bench serve`. After
`BEFORE` seconds of load something is done to the first server, and after `STOPPED` more what was stopped goes on:

    nothing          how many are answered
    engine stopped   SIGSTOP of `VLLM::EngineCore`: `/health` says 200
    server stopped   SIGSTOP of the API server alone
    engine killed    kill -9 of `VLLM::EngineCore`
    server killed    kill -9 of the API server alone

The columns are those of `frozen_bench.py`. `gtm, as the page` is gtm with the file of docs/vllm.md, whose completion check is asked less often; `gtm before` is the gtm of another folder, with the same file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import frozen_bench as frozen

from tests.ports import free_port
from tests.system.balancers import HOST

NAMES = ("gtm", "gtm, as the page", "gtm before", "haproxy", "envoy")
BEFORE, STOPPED, SLOTS = 6.0, 40.0, 8
HERE = frozen.peers.HERE
PAGE = HERE / "docs" / "vllm.md"
_PAGE_CHECKS = {"interval": 10.0}
ALONE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
ALONE |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
_NICE = ("nice", "-n", "5")


class Vllm(frozen.Server):
    """A vLLM. `whole` means its API server alone."""

    def suffer(self, number: signal.Signals, *, whole: bool) -> None:
        """Send one of its processes a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.api.pid if whole else self.engine, number)

    @property
    def completes(self) -> bool:
        """Whether it answers."""
        asked = {"model": "bench", "prompt": "1", "max_tokens": 1}
        try:
            url = f"http://127.0.0.1:{self.port}/v1/completions"
            return httpx.post(url, json=asked, trust_env=False, timeout=30).status_code == 200
        except httpx.HTTPError:
            return False

    def end(self) -> None:
        """End all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.api.pid, signal.SIGKILL)
        self.api.wait()


class Servers:
    """vLLM servers that serve, made anew where one was killed."""

    def __init__(self, vllm: Path, home: Path) -> None:
        self._vllm, self.home = vllm, home
        self._running: list[Vllm] = []

    def two(self) -> list[Vllm]:
        """Two that answer."""
        well = [one for one in self._running if one.completes]
        for one in self._running:
            if one not in well:
                one.end()
        self._running = well + [self._start() for _ in range(2 - len(well))]
        for one in self._running:
            while not one.completes:
                if one.api.poll() is not None:
                    raise SystemExit(f"vLLM has ended: {self.home}/{one.port}.log")
                time.sleep(1)
            one.engine = next(
                pid for pid, name in _children(one.api.pid) if name.startswith("VLLM::EngineCor")
            )
        return self._running

    def _start(self) -> Vllm:
        port = free_port()
        options = "--served-model-name bench --load-format dummy --max-model-len 2048 --enforce-eager --dtype float32"
        command = [*_NICE, self._vllm / "bin" / "vllm", "serve", "./tiny", *options.split()]
        command += ["--max-num-seqs", str(SLOTS), "--port", str(port)]
        with (self.home / f"{port}.log").open("w") as log:
            api: Any = subprocess.Popen(
                command, cwd=self.home, env=os.environ | ALONE, stdout=log, stderr=log, start_new_session=True
            )
        return Vllm(port, api, 0)

    def end(self) -> None:
        """End them."""
        for one in self._running:
            one.end()


def _children(pid: int) -> Iterator[tuple[int, str]]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child), Path(f"/proc/{child}/comm").read_text()


@contextmanager
def servers(vllm: Path) -> Iterator[Servers]:
    """The model of docs/vllm.md, and servers of it."""
    with tempfile.TemporaryDirectory() as home:
        found = re.search(r"^```python\n# tiny.py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        assert found is not None
        subprocess.run([vllm / "bin" / "python", "-c", found[1]], cwd=home, check=True)
        made = Servers(vllm, Path(home))
        try:
            yield made
        finally:
            made.end()


async def trial(
    balancer: frozen.Balancer, suffers: Vllm, fault: str, *, vllm: Path, home: Path, prompts: int, rate: float
) -> dict[str, Any]:
    """One load, with one fault in it."""
    options = f"--base-url http://127.0.0.1:{balancer.port} --model bench --tokenizer {home}/tiny --num-prompts {prompts} --request-rate {rate}"
    command = [
        *_NICE,
        vllm / "bin" / "python",
        str(Path(__file__).with_name("vllm_load.py")),
        "bench",
        "serve",
    ]
    command += ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions", *options.split()]
    command += ["--header", f"Host={HOST}", "--ignore-eos", "--disable-tqdm", "--dataset-name", "random"]
    command += ["--random-input-len", "64", "--random-output-len", "24"]
    pipe = asyncio.subprocess.PIPE
    load = await asyncio.create_subprocess_exec(
        *command, env=os.environ | ALONE, stdout=pipe, stderr=asyncio.subprocess.STDOUT, limit=1 << 20
    )
    chats: list[frozen.Chat] = []
    said: list[str] = []
    begun = asyncio.Event()

    async def read() -> None:
        assert load.stdout is not None
        while line := (await load.stdout.readline()).decode():
            said.append(line)
            if line.startswith('{"sent"'):
                chats.append(frozen.Chat(**json.loads(line)))
            elif line.startswith("Starting main benchmark run"):
                begun.set()
        begun.set()

    reader = asyncio.create_task(read())
    await begun.wait()
    await asyncio.sleep(BEFORE)
    happened = time.monotonic()
    judged: list[float] = []
    watcher = None
    if fault != "nothing":
        number, whole = frozen.FAULTS[fault]
        suffers.suffer(number, whole=whole)
        watcher = asyncio.create_task(frozen.watch(balancer, judged))
        if number == signal.SIGSTOP:
            await asyncio.sleep(STOPPED)
            suffers.suffer(signal.SIGCONT, whole=whole)
    await reader
    await load.wait()
    if watcher is not None:
        watcher.cancel()
    if len(chats) != prompts:
        raise SystemExit("`vllm bench serve` has ended too soon:\n" + "".join(said[-20:]))
    found = frozen.summary(fault, chats, happened, judged[0] if judged else None)
    first = sorted(one.first - one.sent for one in chats if one.first is not None)
    return found | {
        "all": len(chats),
        "whole": sum(one.whole for one in chats),
        "first_p50": round(first[len(first) // 2], 3),
    }


def main() -> None:
    """Measure, and print a row for each trial; JSON on the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    faults = ("nothing", "engine stopped", "server stopped", "engine killed", "server killed")
    parser.add_argument("--vllm", type=Path, default=Path("vllm"))
    parser.add_argument("--only", nargs="*", choices=NAMES, default=["gtm", "haproxy", "envoy"])
    parser.add_argument("--faults", nargs="*", choices=faults, default=faults)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=150)
    parser.add_argument("--rate", type=float, default=6.0)
    parser.add_argument("--before", type=Path, help="another folder of gtm, for `gtm before`")
    parser.add_argument("--log", action="store_true", help="print gtm's log of each trial")
    options = parser.parse_args()
    starts: dict[str, frozen.Start] = {
        "gtm": frozen.gtm(slots=SLOTS),
        "gtm, as the page": frozen.gtm(slots=SLOTS, completion=_PAGE_CHECKS),
        "gtm before": frozen.gtm(options.before or HERE, slots=SLOTS, completion=_PAGE_CHECKS),
        "haproxy": frozen.haproxy,
        "envoy": frozen.envoy,
    }
    vllm = options.vllm.absolute()
    if not (vllm / "bin" / "vllm").exists():
        raise SystemExit(
            f"there is no vLLM in {vllm}: docs/vllm.md says how to install one, --vllm where it is"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # not without ending the servers
    rows = []
    with servers(vllm) as made:
        for _ in range(options.rounds):
            for fault in options.faults:
                for name in options.only:
                    with ExitStack() as stack:
                        two = made.two()
                        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                        whole = fault.startswith("server")
                        running = stack.enter_context(starts[name]([one.port for one in two], home, whole))
                        load = {"prompts": options.prompts, "rate": options.rate}
                        found = trial(running, two[0], fault, vllm=vllm, home=made.home, **load)
                        rows.append({"balancer": name, **asyncio.run(found)})
                        print(rows[-1], flush=True)
                        if options.log and name.startswith("gtm"):
                            print((home / "fra.log").read_text(), flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
