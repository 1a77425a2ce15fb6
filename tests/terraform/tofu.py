"""Builds OpenTofu, with which the drills of `programs` run beside Terraform (`make tofu`): no package registry has it, and it is a Go module."""

from __future__ import annotations

import sys

from tests.go_programs import build
from tests.tools import TOFU

MODULE = "github.com/opentofu/opentofu"
VERSION = "v1.12.6"
_RELEASED = f"-X {MODULE}/version.dev=no"
"""Else it would be a version before the one that it is, which meets no `required_version`."""


def main() -> None:
    """Build it where the tests look for it."""
    print(f"{build(MODULE, VERSION, './cmd/tofu', TOFU, _RELEASED)}: OpenTofu {VERSION}")


if __name__ == "__main__":
    sys.exit(main())
