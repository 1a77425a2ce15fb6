"""How soon a region that dies leaves the answers: `python tests/bench/heartbeat_bench.py [--rounds 20]`.

Control and an edge (`gtm serve`), two regions with a balancer each, probes each second (two failures in a row are down). A
balancer is killed (SIGKILL), and the edge is asked for redirects until they lead elsewhere; then it is started again. Likewise
balancers are stopped for 200 ms (SIGSTOP, SIGCONT), which must change no verdict.

The last line is one JSON object: seconds as least, median and most, and how often a pause changed a verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.ports import free_port

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.system.balancers import HOST, MOUNTAIN_VIEW, REGIONS, Backends
from tests.system.harness import Process, System, eventually, system
from tests.system.test_balancer_fleet import policy

PAUSE_S = 0.2


def leads(running: System, port: int) -> bool:
    """Whether an American is sent to the region of this port."""
    location = running.redirect(HOST, "/", MOUNTAIN_VIEW).headers.get("location", "")
    return location.startswith(f"http://127.0.0.1:{port}/")


def log_of(running: System) -> str:
    """What the edge has said."""
    return running.process.output


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        backends = Backends(folder / "backends.log", 4)
        stack.callback(backends.process.popen.kill)
        ports = {name: free_port() for name in REGIONS}
        running = stack.enter_context(
            system(folder / "data", "--trusted-proxies", "127.0.0.0/8", "--probe-allow", "127.0.0.0/8")
        )
        url = "/v1/policy:apply?force=true&force_reason=bench"
        running.api("POST", url, json={"policy": policy(ports)}).raise_for_status()
        commands = {}
        for number, name in enumerate(REGIONS):
            body = {"name": f"{name}-balancer", "role": "balancer", "regions": name}
            token = running.api("POST", "/v1/tokens", json=body).json()["token"]
            listed = "".join(
                f"  - {{url: {one}, slots: 64}}\n" for one in backends.urls[2 * number : 2 * number + 2]
            )
            file = folder / f"{name}.yaml"
            file.write_text(f"backends:\n{listed}")
            commands[name] = (
                [
                    *("balancer", "--region", name, "--name", f"{name}-1", "--data-dir", str(folder / name)),
                    *("--control", running.control, "--balancer-port", str(ports[name]), "--admin-port", "0"),
                    *("--trusted-proxies", "127.0.0.0/8", "--file", str(file)),
                ],
                folder / f"{name}.log",
                {"GTM_TOKEN": token},
            )
        processes = {name: Process(*command) for name, command in commands.items()}
        for name in REGIONS:
            stack.callback(lambda name=name: processes[name].popen.kill())
        eventually(lambda: leads(running, ports["iad"]), "Ashburn serves", 60)

        deaths = []
        for _ in range(arguments.rounds):
            time.sleep(2.0)
            processes["iad"].popen.kill()
            began = time.perf_counter()
            while leads(running, ports["iad"]):
                time.sleep(0.002)
            deaths.append(time.perf_counter() - began)
            processes["iad"].popen.wait()
            processes["iad"] = Process(*commands["iad"])
            eventually(lambda: leads(running, ports["iad"]), "Ashburn serves again", 60)

        time.sleep(3.0)
        before = log_of(running).count("is down")
        for _ in range(arguments.rounds):
            os.kill(processes["iad"].popen.pid, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            os.kill(processes["iad"].popen.pid, signal.SIGCONT)
            time.sleep(0.7)
        flaps = log_of(running).count("is down") - before
    found = {
        "deaths_s": {
            "least": round(min(deaths), 3),
            "median": round(statistics.median(deaths), 3),
            "most": round(max(deaths), 3),
        },
        "pauses_that_changed_a_verdict": flaps,
        "rounds": arguments.rounds,
        "load": os.getloadavg()[0],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
