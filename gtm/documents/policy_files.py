"""Which files of a folder are a policy's: one law for all that reads a folder, or writes into one.

Laws, which Terraform's provider keeps too (`readFolder`; `tests/documents/folders.json` holds both to them):
  1. A folder is read with all that is below it, in the order of names, through symbolic links. What is reached twice is read once.
  2. `*.yaml`, `*.yml` and `*.json`, in capitals or not, are policy; those that are called `expect` hold expected decisions.
  3. Hidden files and those that editors leave are not read. `..data` of a Kubernetes ConfigMap is hidden; the links to it are not.
  4. Nothing is passed over without a word: what was not read is named, and what could not be read is a problem.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from gtm.core.model.problems import Problem
from gtm.core.model.references import some

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
MAX_ENTRIES = 10_000
"""Most files and folders below a folder. More is a disk, reached by a link or a mistyped path, and no policy."""

_EXPECTATIONS = "expect"
_CALLED = "*.yaml, *.yml or *.json"
_PASSED = re.compile(r"\..*|#.*#|.*(?:~|\.(?:bak|old|orig|rej|tmp|sw[a-p]|swpx))", re.IGNORECASE | re.DOTALL)
"""Names of hidden files, and of those that editors, patches and mergers leave."""


@dataclass(slots=True)
class Files:
    """What is in a folder.

    `policy` and `expectations` are to be read, in this order. `passed` are hidden files and editors', `others` whatever else is
    not read; both by their paths within the folder, those of folders with a slash at their end.
    """

    policy: list[Path] = field(default_factory=list)
    expectations: list[Path] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def notes(self) -> Iterator[str]:
        """What was not read, a sentence for each reason."""
        if self.passed:
            yield f"{_were(self.passed)} not read, being hidden or an editor's: {some(self.passed, 'files')}"
        if self.others:
            called = f"a policy's files are called {_CALLED}"
            yield f"{_were(self.others)} not read: {', '.join(self.others)} ({called})"


def shown(path: str | PurePath) -> str:
    """A path as it may be printed: what a terminal or a log would take for more than a letter is escaped."""
    text = str(path)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_policy(name: str) -> bool:
    """Whether a file of this name, in a folder, is read as policy or as expected decisions."""
    return PurePath(name).suffix.lower() in SUFFIXES and not _PASSED.fullmatch(name)


def policy_files(path: Path) -> Files:
    """The files of a policy: those of a folder, or the very file that a path names, whatever it is called."""
    found = Files()
    if not path.is_dir():
        found.policy.append(path)
        return found
    _walk(path, found)
    if not found.policy and not found.problems:
        there = [*map(shown, (file.relative_to(path) for file in found.expectations))]
        there += [*found.others, *found.passed]
        instead = f"; it holds {some(there, 'files')}" if there else ""
        message = f"there are no {_CALLED} files in this folder, nor below it{instead}"
        found.problems.append(Problem(shown(path), "missing", message))
    return found


def names_within(folder: Path, *, expectations: bool = True) -> list[str]:
    """The policy files in a folder and below it, and those of expected decisions, by their paths within it: for those who would write there.

    Raises:
        OSError: what is there cannot be told, so that nothing should be written.
    """
    found = Files()
    _walk(folder, found)
    if found.problems:
        raise OSError(0, f"{found.problems[0]}", str(folder))
    files = found.policy + (found.expectations if expectations else [])
    return [shown(file.relative_to(folder)) for file in files]


def _walk(top: Path, found: Files) -> None:
    """Look at all that is below a folder, without recursion: how deep folders go, others decide."""
    known: dict[str, Path] = {}
    left, entries = [(top, os.path.realpath(top))], 0
    while left:
        path, real = left.pop()
        try:
            if path.is_symlink():
                real = os.path.realpath(path)
            within = _look(path, real, top, known, found)
        except OSError as error:
            message = (error.strerror or "cannot be read").lower()
            found.problems.append(Problem(shown(path), "unreadable", message))
            continue
        entries += len(within)
        if entries > MAX_ENTRIES:
            message = f"more than {MAX_ENTRIES} files and folders are below it: name the folder that holds the policy alone"
            found.problems.append(Problem(shown(top), "too_many", message))
            return
        left += ((path / name, os.path.join(real, name)) for name in sorted(within, reverse=True))  # noqa: PTH118 - text


def _look(path: Path, real: str, top: Path, known: dict[str, Path], found: Files) -> list[str]:
    """Say of a file or a folder what it is, which has a path without links, too; the names that are in a folder which is to be read.

    Raises:
        OSError: it cannot be looked at.
    """
    inner = path.relative_to(top)
    name = shown(inner)
    if path != top and _PASSED.fullmatch(path.name):
        found.passed.append(f"{name}/" if path.is_dir() else name)
        return []
    found_there = path.stat()
    mode = found_there.st_mode
    name += "/" * stat.S_ISDIR(mode)
    wanted = stat.S_ISDIR(mode) or is_policy(path.name)
    first = known.setdefault(real, inner) if wanted else inner
    if first != inner:
        found.others.append(f"{name} (read as {shown(first)})")
    elif stat.S_ISDIR(mode):
        within = _names(path)
        if not within and path != top:
            found.others.append(f"{name} (empty)")
        return within
    elif not wanted:
        found.others.append(name)
    elif not stat.S_ISREG(mode):
        found.problems.append(Problem(shown(path), "unreadable", "is no regular file"))
    elif not found_there.st_size and path.suffix.lower() != ".json" and not path.read_bytes():
        found.others.append(
            f"{name} (empty)"
        )  # cut off, as a rule: a full disk, `>` before a command that failed
    elif path.stem.lower() == _EXPECTATIONS:
        found.expectations.append(path)
    else:
        found.policy.append(path)
    return []


def _names(folder: Path) -> list[str]:
    """The names in a folder, one more than may be at most."""
    with os.scandir(folder) as entries:
        return [entry.name for entry, _ in zip(entries, range(MAX_ENTRIES + 1), strict=False)]


def _were(names: list[str]) -> str:
    return "1 file was" if len(names) == 1 else f"{len(names)} files were"
