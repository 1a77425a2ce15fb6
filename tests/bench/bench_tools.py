"""Install the Debian packages that benchmarks start: `make bench-tools`. Needs nothing but the standard library."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.tools import find, install_packages

PROGRAMS = {
    "wrk": "wrk",
    "nginx": "nginx-light",
    "taskset": "util-linux",
    "dnsperf": "dnsperf",
    "gdnsd": "gdnsd",
    "pdns_server": "pdns-server",
    "pdnsutil": "pdns-server",
    "knotd": "knot",
    "keymgr": "knot",
    "cc": "gcc libc6-dev",
}
"""Program → its packages."""
LIBRARIES = {
    "*/pdns/libgeoipbackend.so": "pdns-backend-geoip",
    "*/pdns/libbindbackend.so": "pdns-backend-bind",
    "*/knot/modules-*/geoip.so": "knot-module-geoip",
}
"""Library, below /usr/lib → its package."""


def absent(name: str) -> bool:
    """Whether a program, or a library below /usr/lib, is not installed."""
    return not any(Path("/usr/lib").glob(name)) if "/" in name else find(name) is None


def main() -> int:
    """Install what is missing."""
    every = {**PROGRAMS, **LIBRARIES}
    packages = {package for name, names in every.items() if absent(name) for package in names.split()}
    return install_packages(
        sorted(packages), "Benchmarks leave out what needs programs that are not here.", "make bench-tools"
    )


if __name__ == "__main__":
    sys.exit(main())
