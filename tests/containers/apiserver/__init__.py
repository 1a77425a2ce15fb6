"""A real API server of Kubernetes with its etcd, on loopback: `make apiserver` builds both (needs Go).

Their own go.mod names each of Kubernetes' `staging` modules, which the module itself replaces by folders that it is published without.
"""

from __future__ import annotations

import os
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.go_programs import go
from tests.ports import free_port
from tests.system.harness import eventually

HERE = Path(__file__).parent
HOME = HERE.parents[2] / "build" / "apiserver"
BUILD = "GTM_BUILD_APISERVER"
"""The variable with which the drill builds what is not there."""
_PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}


def missing() -> str | None:
    """Why there is no API server to ask; None: there is one, or it is to be built."""
    if os.environ.get(BUILD) or all((HOME / name).exists() for name in _PACKAGES):
        return None
    return f"no kube-apiserver is built: `make apiserver` does it, in 8 minutes of a processor, or {BUILD}=1"


def build() -> None:
    """Build what is not there.

    Raises:
        subprocess.CalledProcessError: it does not compile; the compiler has said why.
    """
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false"}
    for name, package in _PACKAGES.items():
        if not (HOME / name).exists():
            command = [go(), "build", "-ldflags", "-s -w", "-o", str(HOME / name), package]
            subprocess.run(command, cwd=HERE, env=environment, check=True)


@contextmanager
def running(home: Path) -> Iterator[httpx.Client]:
    """An API server whose state is in a folder, and a client of it that may do anything."""
    store, peers, port = free_port(), free_port(), free_port()
    key = home / "accounts.key"
    token, tokens = secrets.token_hex(16), home / "tokens.csv"
    tokens.write_text(f"{token},admin,admin,system:masters\n")
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    commands = (
        [
            *(HOME / "etcd", "--data-dir", home / "etcd", "--log-level", "error"),
            *(f"--{one}-client-urls=http://127.0.0.1:{store}" for one in ("listen", "advertise")),
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
        ],
        [
            *(HOME / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{store}", f"--cert-dir={home}"),
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"),
            *("--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16"),
            *(f"--token-auth-file={tokens}", "--service-account-issuer=https://127.0.0.1"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
        ],
    )
    processes = []
    try:
        for number, command in enumerate(commands):
            with (home / f"{number}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        certificate = home / "apiserver.crt"
        eventually(
            lambda: certificate.exists() and certificate.read_bytes(), "the API server has a certificate"
        )
        trusted = ssl.create_default_context(cafile=str(certificate))
        trusted.check_hostname = False  # which is this machine's; no other certificate counts
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(
            headers=headers, base_url=f"https://127.0.0.1:{port}", verify=trusted, trust_env=False, timeout=60
        ) as client:
            eventually(lambda: client.get("/readyz").status_code == 200, "the API server is ready", 120.0)
            yield client
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
