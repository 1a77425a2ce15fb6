"""What Kubernetes puts into each pod for each Service is not taken for gtm's own settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gtm.cli.common.service_links import ignore

NAMES = ["GTM_CONTROL", "GTM_EDGE", "GTM_BALANCER", "GTM_DNS", "GTM_ADMIN"]


def injected(name: str, host: str, port: int, protocol: str = "tcp") -> dict[str, str]:
    """All that kubelet sets for one Service (kubernetes/kubernetes, pkg/kubelet/envvars)."""
    where = f"[{host}]" if ":" in host else host
    link = f"{protocol}://{where}:{port}"
    of_port = f"{name}_PORT_{port}_{protocol.upper()}"
    return {
        f"{name}_SERVICE_HOST": host,
        f"{name}_SERVICE_PORT": str(port),
        f"{name}_SERVICE_PORT_HTTP": str(port),
        f"{name}_PORT": link,
        of_port: link,
        f"{of_port}_PROTO": protocol,
        f"{of_port}_PORT": str(port),
        f"{of_port}_ADDR": host,
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("host", "protocol"), [("10.0.0.1", "tcp"), ("10.0.0.1", "udp"), ("fd00::1", "tcp")])
def test_service_links_are_ignored(name: str, host: str, protocol: str) -> None:
    """In the place of an option they are taken away and named, with the Service; nothing else of the environment is.

    Sources: sequinstream/sequin issue 2155 (a Service of the chart's own name crash-loops the pod);
    permitio/opal-helm-chart issue 30 (`invalid literal for int()` names neither Service nor Kubernetes).
    """
    own = {"PATH": "/bin", "GTM_CONTROL_URL": "http://gtm-control:8080", "GTM_DATA_DIR": "tcp://x"}
    environment = {**injected(name, host, 80, protocol), **own}
    (said,) = ignore(environment)
    service = name.lower().replace("_", "-")
    assert f"{name}_PORT=" in said
    assert f"`{service}`" in said
    assert f"{name}_PORT" not in environment
    assert own.items() <= environment.items()


@pytest.mark.parametrize(
    "value", ["8080", "", "tcp://", "tcp://gtm:80", "http://10.0.0.1:80", "tcp://10.0.0.1"]
)
def test_other_values_stay(value: str) -> None:
    """What nobody but a person sets is read as an option, and refused if it is none."""
    environment = {"GTM_CONTROL_PORT": value, "OTHER_PORT": "tcp://10.0.0.1:80"}
    assert ignore(environment) == []
    assert environment["GTM_CONTROL_PORT"] == value


def test_a_server_starts_beside_them() -> None:
    """The program says one line, and goes on to what it would have said without them."""
    environment = {**os.environ, **injected("GTM_EDGE", "10.0.0.1", 80)}
    environment.pop("GTM_TOKEN", None)
    program = [
        sys.executable,
        "-c",
        "from gtm.cli import main; main()",
        "edge",
        "--control",
        "http://127.0.0.1:9",
    ]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=60)
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("warning: GTM_EDGE_PORT=tcp://10.0.0.1:80 is ignored")
    assert "an edge needs a token" in second
    assert done.returncode == 4
