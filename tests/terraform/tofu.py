"""Builds OpenTofu, with which the drills of `programs` run beside Terraform (`make tofu`): no package registry has it, and it is a Go module.

It is built where Go's cache of modules has it, by its own go.mod: `go install` refuses a module that replaces others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.tools import TOFU, find

MODULE = "github.com/opentofu/opentofu"
VERSION = "v1.12.6"
_RELEASED = f"-s -w -X {MODULE}/version.dev=no"
"""Else it would be a version before the one that it is, which meets no `required_version`."""


def main() -> None:
    """Download the module, which Go holds against the checksum database, and build it."""
    go = find("go") or "/usr/local/go/bin/go"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false"}
    download = [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    told = subprocess.run(download, env=environment, stdout=subprocess.PIPE, check=True)
    build = [go, "build", "-ldflags", _RELEASED, "-o", str(TOFU), "./cmd/tofu"]
    subprocess.run(build, cwd=json.loads(told.stdout)["Dir"], env=environment, check=True)
    print(f"{TOFU}: OpenTofu {VERSION}")


if __name__ == "__main__":
    sys.exit(main())
