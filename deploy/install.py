"""Set up a virtual environment from a lock file: `python3 deploy/install.py VENV LOCK`.

What is locked is installed, not resolved: pip takes each line of the lock as it stands (`--no-deps`), holds each file
against its hash, and `pip check` then says whether anything is missing. Were pip left to resolve, a release that appears on
the index tomorrow could break today's commit: pip before 23.3 looks a requirement with an extra (`coverage[toml]`) up anew,
takes the newest version, and finds no hash for it in the lock.

An environment whose installation was interrupted is made anew, since pip takes a distribution for installed once its
metadata is there, whether or not all of its files are. What goes wrong is told in one line, with its cause and a remedy;
what pip printed is kept beside the environment. It needs nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
UNFINISHED = "unfinished"
"""A file in an environment that is being set up, or whose setting up was cut off."""

ELSEWHERE = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_CONSTRAINT",
    "PIP_REQUIREMENT",
    "PIP_REQUIRE_HASHES",
    "PIP_NO_DEPS",
)
"""Settings that would have pip install something else, or into another place. Where to download from stays the user's."""

ADDRESS = re.compile(r"(?<=://)[^/@\s]*@")
"""What stands before the host in an address: a password, maybe."""

AGAIN = "then run the same command again"

CAUSES = (
    (
        r"ensurepip is not available|No module named '?(?:venv|ensurepip)",
        "this Python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv; "
        + AGAIN,
    ),
    (r"No space left on device", "the disk is full: make room, " + AGAIN),
    (r"Permission denied: '?([^'\n]*)", "no right to write {1}: change its owner or its mode, " + AGAIN),
    (
        r"DO NOT MATCH THE HASHES[^\n]*\n\s*([^\s]+)(?:\s+from\s+\S+)?",
        "the package index gave a file of {1} that is not the locked one. If the index is a mirror ({index}), its copy is "
        "wrong or it was built anew there: take another index (PIP_INDEX_URL), " + AGAIN,
    ),
    (
        r"ProxyError|Cannot connect to proxy|Tunnel connection failed",
        "the proxy {proxy} does not lead to the package index ({index}): correct PIP_PROXY or HTTPS_PROXY, "
        + AGAIN,
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError",
        "the certificate of the package index ({index}) is not trusted here: set PIP_CERT to the authority's file, "
        + AGAIN,
    ),
    (
        r"(\S+) is not a trusted or secure host",
        "the package index at {1} is not asked, since its address begins with http: and not https:. Correct "
        "PIP_INDEX_URL, or name the host in PIP_TRUSTED_HOST, " + AGAIN,
    ),
    (
        r"(40[13]) Client Error[^\n]*",
        "the package index ({index}) refuses: {0}. Look at its address and password, " + AGAIN,
    ),
    (
        r"connection broken by '(\w+)|(ReadTimeoutError|ConnectTimeoutError|ConnectionError)",
        "the package index ({index}) cannot be reached: {1}. Look at the network, or say where an index is "
        "(PIP_INDEX_URL) or a proxy (PIP_PROXY), " + AGAIN,
    ),
    (
        r"No matching distribution found for (\S+)",
        "the package index ({index}) does not have {1} for this Python and machine. Look at PIP_INDEX_URL, PIP_NO_INDEX "
        "and PIP_FIND_LINKS; a mirror may be behind; " + AGAIN,
    ),
    (r"(\S+ \S+ (?:requires|has requirement) [^\n]*)", "the lock file lacks something: {1}. Run make lock"),
)
"""What pip or venv says → what to tell. The first that is found counts: causes stand before what follows from them."""


class InstallError(Exception):
    """What went wrong, with its remedy."""


def main(arguments: list[str]) -> int:
    """Set the environment up; 0 when it stands as the lock says.

    Args:
        arguments: the environment's folder, and the lock file.
    """
    venv, lock = Path(arguments[0]), Path(arguments[1])
    print(f"Installing gtm by {lock} into {venv} (once; needs a package index) ...", flush=True)
    try:
        with lock.open() as held:
            _wait_for_turn(held.fileno(), venv)
            install(venv, lock)
    except InstallError as error:
        print(f"Not installed: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted, not installed: run the same command again.", file=sys.stderr)
        return 130
    return 0


def install(venv: Path, lock: Path) -> None:
    """Make `venv` if it is not there or not whole; install what `lock` says and this checkout; check.

    Raises:
        InstallError: something went wrong; the environment is marked unfinished.
    """
    python, log, mark = venv / "bin" / "python", venv.with_name(venv.name + "-install.log"), venv / UNFINISHED
    log.unlink(missing_ok=True)
    if mark.exists() or (venv.exists() and not python.exists()):
        shutil.rmtree(venv)
    if not python.exists():
        venv.mkdir(parents=True)
        mark.touch()
        try:
            _run([sys.executable, "-m", "venv", str(venv)], log)
        except InstallError:
            shutil.rmtree(venv)
            raise
    mark.touch()
    pip = [str(python), "-m", "pip"]
    place = ["install", "-q", "--no-input", "--no-deps"]
    _run([*pip, *place, "--require-hashes", "-r", str(lock)], log)
    _run([*pip, *place, "--no-build-isolation", "-e", str(CHECKOUT)], log)
    _run([*pip, "check"], log)
    mark.unlink()
    log.unlink(missing_ok=True)


def _wait_for_turn(lock: int, venv: Path) -> None:
    """Two at once would disturb each other: `make run` and `make test` in two terminals, say."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"Waiting for another installation into {venv} ...", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _run(command: list[str], log: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "LC_ALL": "C.UTF-8"}
    if (
        environment.get("PIP_RETRIES", "0") == "0"
    ):  # pip tells why it cannot reach an index when it tries again
        environment["PIP_RETRIES"] = "1"
    done = subprocess.run(
        command,
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise InstallError(
            f"{name} ended {command[2]}; if nobody sent it, there was no memory left: free some, {AGAIN}"
        )
    if done.returncode:
        said = ADDRESS.sub("", done.stdout.decode(errors="replace"))
        log.write_text(said)
        raise InstallError(f"{cause(said, os.environ)} (all that was said: {log})")


def cause(said: str, environment: Mapping[str, str]) -> str:
    """Why it failed, and what to do.

    Args:
        said: what pip or venv printed.
        environment: where proxies and the index are named.
    """
    index = environment.get("PIP_INDEX_URL", "pip's configured one")
    proxies = ("PIP_PROXY", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    proxy = next((environment[name] for name in proxies if environment.get(name)), "of pip's configuration")
    for pattern, text in CAUSES:
        found = re.search(pattern, said)
        if found:
            parts = [found[0], *(part for part in found.groups() if part)]
            return text.format(*parts, index=ADDRESS.sub("", index), proxy=ADDRESS.sub("", proxy))
    lines = said.strip().splitlines() or ["no word of why"]
    errors = [line for line in lines if line.lower().startswith("error") and not line.endswith("Exception:")]
    return (errors or lines)[-1].rstrip(".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
