"""Hold that each lock file is closed: what a locked distribution requires is locked too.

`pip install --no-deps` (deploy/install.py) takes a lock as it stands, so what the lock lacks would be missing at run time.
Starting from what `pyproject.toml` declares, this follows the metadata of what is installed here, extras included, through
every environment that the markers of the lock tell apart, and wants each requirement to be met by a line of the lock that
holds in that environment. Lines whose distribution this environment does not have (`colorama` on Linux) end a path.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parent.parent
LOCKS = {"requirements.lock": ["build"], "requirements-dev.lock": ["dev"]}
"""Lock file → the dependency groups that it holds beside what gtm itself requires (`make lock`)."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (
    ("CPython", "linux", "x86_64"),
    ("CPython", "linux", "aarch64"),
    ("CPython", "linux", "riscv64"),
    ("CPython", "darwin", "arm64"),
    ("CPython", "win32", "AMD64"),
    ("CPython", "emscripten", "wasm32"),
    ("PyPy", "linux", "x86_64"),
)
"""What the markers of the locks tell apart, beside versions of Python."""
SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows", "emscripten": "Emscripten"}

Environment = dict[str, str]
Metadata = Callable[[str], tuple[str, Sequence[str]] | None]
"""Name → version and requirements of what is installed; None if it is not."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a lock: one version of a distribution, and where it holds."""

    requirement: Requirement

    @property
    def version(self) -> str:
        """The version that it pins."""
        (pin,) = self.requirement.specifier
        return pin.version

    def holds(self, environment: Environment) -> bool:
        """Is it installed there?"""
        return self.requirement.marker is None or self.requirement.marker.evaluate(environment)


def environments() -> Iterator[Environment]:
    """Every environment that a lock's markers can tell apart, in PEP 508's variables."""
    for python, (implementation, system, machine) in product(PYTHONS, PLATFORMS):
        yield {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "implementation_version": f"{python}.0",
            "sys_platform": system,
            "platform_system": SYSTEMS[system],
            "platform_release": "",
            "platform_version": "",
            "os_name": "nt" if system == "win32" else "posix",
            "platform_machine": machine,
            "implementation_name": implementation.lower(),
            "platform_python_implementation": implementation,
        }


def read_lock(text: str) -> dict[str, list[Line]]:
    """Name → its lines, of a lock as uv writes it."""
    lines: dict[str, list[Line]] = {}
    for found in re.finditer(r"^[a-z0-9][^\n\\]*", text, re.MULTILINE):
        line = Line(Requirement(found[0]))
        lines.setdefault(canonicalize_name(line.requirement.name), []).append(line)
    return lines


def installed(name: str) -> tuple[str, Sequence[str]] | None:
    """What is installed here under a name."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    return found.version, found.requires or ()


def follow(
    lock: dict[str, list[Line]], roots: Sequence[str], metadata: Metadata = installed
) -> tuple[set[str], list[str]]:
    """Follow requirements through a lock.

    Args:
        lock: as `read_lock` gives it.
        roots: requirements that the project declares.
        metadata: of installed distributions.

    Returns:
        The names that are required somewhere, and a sentence for each requirement that the lock does not meet.
    """
    found: dict[str, None] = {}
    names: set[str] = set()
    facts, parsed = cache(metadata), cache(Requirement)
    for environment in environments():
        waiting: list[tuple[str, Sequence[str], tuple[str, ...]]] = [("pyproject.toml", roots, ("",))]
        seen: set[tuple[str, tuple[str, ...]]] = set()
        while waiting:
            by, requirements, extras = waiting.pop()
            for text in requirements:
                wanted = parsed(text)
                if wanted.marker and not any(
                    wanted.marker.evaluate({**environment, "extra": e}) for e in extras
                ):
                    continue
                name = canonicalize_name(wanted.name)
                lines = [line for line in lock.get(name, ()) if line.holds(environment)]
                met = [line for line in lines if wanted.specifier.contains(line.version, prereleases=True)]
                if not met:
                    has = f"{name} {lines[0].version}" if lines else f"no {name}"
                    where = "{platform_python_implementation} {python_version} on {sys_platform}".format_map(
                        environment
                    )
                    found.setdefault(f"{by} requires {text}, and the lock has {has} (for {where}, say)")
                    continue
                names.add(name)
                known, step = facts(name), (name, ("", *sorted(wanted.extras)))
                if known is not None and known[0] == met[0].version and step not in seen:
                    seen.add(step)
                    waiting.append((name, known[1], step[1]))
    by_text: dict[str, str] = {}
    for sentence in found:
        by_text.setdefault(sentence.partition(" (for ")[0], sentence)
    return names, list(by_text.values())


def declared(project: dict[str, Any], groups: Sequence[str]) -> list[str]:
    """The requirements of gtm and of dependency groups (PEP 735), included groups followed."""
    wanted: list[str] = []
    for group in groups:
        for one in project["dependency-groups"][group]:
            wanted += declared(project, [one["include-group"]]) if isinstance(one, dict) else [one]
    return [*project["project"]["dependencies"], *wanted]


def main() -> int:
    """Check each lock; 0 when both are closed."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    bad = 0
    for name, groups in LOCKS.items():
        lock = read_lock((CHECKOUT / name).read_text())
        _, said = follow(lock, declared(project, groups))
        for sentence in said:
            print(f"{name}: {sentence}. Run make lock.", file=sys.stderr)
        bad += len(said)
        if not said:
            print(
                f"{name}: {len(lock)} distributions; each finds there what it requires, in every environment"
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
