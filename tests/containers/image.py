"""Builds the image twice, holds the two against each other, and tries it: `python -m tests.containers.image` (root, on Debian; ten minutes).

It needs buildah, podman, runc and mmdebstrap. In the place of Docker's image of Python, which needs a registry, stands one of Debian 13 and its
Python, made here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE, IMAGE = "localhost/gtm-python", "localhost/gtm"
MOMENT = "1767225600"
_PLACE = ROOT / "build" / "images"
_STORAGE = ["--root", f"{_PLACE}/store", "--runroot", f"{_PLACE}/run"]
_LIMITS = ["--ulimit", "nofile=16384:16384", "--ulimit", "nproc=4096:4096"]
"""podman would raise them, which not every machine allows."""
_CLOSED = ["--rm", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none"]
NO_ACCOUNT = "1000680000"
"""As OpenShift draws them."""


def main() -> None:
    """Build, compare, try."""
    if not _said("buildah", *_STORAGE, "images", "--quiet", "--filter", f"reference={BASE}"):
        _base()
    built = [_build(), _build()]
    if built[0] != built[1]:
        sys.exit(f"two builds of the same are not the same: {built}")
    print(f"{IMAGE}: {built[0]}, twice")
    data = ["--tmpfs", "/var/lib/gtm:mode=0770,U"]
    anybody = ["--user", f"{NO_ACCOUNT}:0", "--passwd=false"]
    _expect("0.1.0", _run([], "version"))
    _expect("uid=10001(gtm) gid=0(root)", _run(["--entrypoint", "id"]))
    _expect("CapEff:\t0000000000000000", _run(["--entrypoint", "cat"], "/proc/self/status"))
    _expect('"bomFormat": "CycloneDX"', _run(["--entrypoint", "cat"], "/opt/gtm/sbom.cdx.json"))
    _expect("upgraded", _run(data, "db", "upgrade"))
    _expect(
        f"none for user id {NO_ACCOUNT}",
        _run([*anybody, "--tmpfs", "/var/lib/gtm:mode=0777"], "db", "upgrade"),
    )
    url = "GTM_DATABASE_URL=postgresql://gtm@127.0.0.1:1/gtm"
    _expect(
        "127.0.0.1", _run([*anybody, "--env", url], "db", "upgrade")
    )  # as far as the database that is not there
    print("tried: without capabilities, on a read-only root, as its own user and as one without an account")


def _base() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder, "base.tar")
        include = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", include, "trixie", tar], check=True)
        container = _said("buildah", *_STORAGE, "from", "scratch")
        subprocess.run(["buildah", *_STORAGE, "add", "--quiet", container, tar, "/"], check=True)
        subprocess.run(["buildah", *_STORAGE, "commit", "--quiet", "--rm", container, BASE], check=True)


def _build() -> str:
    """Build it anew; its digest. A file of authorities of this machine's own (PIP_CERT) is there while it is built."""
    own = os.environ.get("PIP_CERT")
    authorities = ["--volume", f"{own}:/etc/ssl/certs/ca-certificates.crt:ro"] if own else []
    options = ["--quiet", "--no-cache", "--isolation", "chroot", "--network", "host", "--timestamp", MOMENT]
    where = ["--build-arg", f"PYTHON={BASE}", "--file", "deploy/container/Containerfile", "--tag", IMAGE]
    command = ["buildah", *_STORAGE, "build", *options, *authorities, *where, "."]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _run(options: list[str], *command: str) -> str:
    full = ["podman", *_STORAGE, "--runtime", "runc", "run", *_CLOSED, *_LIMITS, *options, IMAGE, *command]
    done = subprocess.run(full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


def _said(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _expect(part: str, said: str) -> None:
    if part not in said:
        sys.exit(f"expected `{part}`, and it said:\n{said}")


if __name__ == "__main__":
    main()
