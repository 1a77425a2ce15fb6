"""Programs that no package registry has but Go's, built where Go's cache of modules has them.

Each is built by its own go.mod: `go install` refuses a module that replaces others.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.tools import find


def module(name: str, version: str) -> Path:
    """Where a module's sources are; Go downloads them, and holds them against the checksum database.

    Raises:
        subprocess.CalledProcessError: it cannot be had; Go has said why.
    """
    command = [go(), "mod", "download", "-json", f"{name}@{version}"]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Path(json.loads(told.stdout)["Dir"])


def build(name: str, version: str, package: str, target: Path, flags: str = "") -> Path:
    """Build a program of a module, unless this version of it is there.

    Args:
        name: the module's.
        version: as `v1.2.3`.
        package: of the program, in the module.
        target: where the program goes; an empty file beside it says the version.
        flags: for the linker.

    Returns:
        `target`.

    Raises:
        subprocess.CalledProcessError: it does not compile; the compiler has said why.
    """
    stamp = target.with_name(f"{target.name}-{version}")
    if not (stamp.exists() and target.exists()):
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false"}
        command = [go(), "build", "-ldflags", f"-s -w {flags}", "-o", str(target), package]
        subprocess.run(command, cwd=module(name, version), env=environment, check=True)
        stamp.touch()
    return target


def go() -> str:
    """Go itself."""
    return find("go") or "/usr/local/go/bin/go"
