"""What is found wrong while a policy compiles, the checks of names that all of its parts share, and words for it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

from gtm.core.model.problems import Problem

_SUGGESTED = 10
"""How many unknown names are compared with the known ones: each comparison looks at every name there is."""
_NAMED = 10
"""How many things a sentence lists."""


def some(items: Sequence[str], what: str) -> str:
    """The first few of what may be thousands, and how many more there are."""
    if len(items) <= _NAMED:
        return ", ".join(items)
    return f"{', '.join(items[:_NAMED])} and {len(items) - _NAMED} more {what}"


def meant(name: str, known: Iterable[str]) -> str:
    """The known name that is most like an unknown one, as a question to end a sentence with; or nothing.

    It looks at every known name, some 10 µs each: nothing for a path that strangers can take.
    """
    folded = {item.casefold(): item for item in known}
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=0.75)
    return f"; did you mean `{folded[close[0]]}`?" if close else ""


def utc(moment: float) -> str:
    """A POSIX time in seconds as it is written in policies (RFC 3339)."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


class PolicyChecks:
    """The problems and warnings of one compilation, so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self._suggested = 0

    def problem(self, path: str, code: str, message: str) -> None:
        """Keep the policy from compiling, by what is wrong at a path; more may be found and noted."""
        self.problems.append(Problem(path, code, message))

    def warn(self, path: str, message: str) -> None:
        """Say what is odd at a path, and let the policy compile."""
        self.warnings.append(f"{path}: {message}")

    def references(
        self, path: str, names: Sequence[str], known: Container[str], what: str, field: str = ""
    ) -> None:
        """Every name exists, and none is listed twice; `field` is the part of each item that holds the name."""
        for index, name in enumerate(names):
            if name not in known:
                message = f"there is no {what} `{name}`{self._meant(name, known)}"
                self.problem(f"{path}[{index}]{field}", "unknown_reference", message)
        self.listed_once(path, names, field)

    def listed_once(self, path: str, names: Sequence[str], field: str = "") -> None:
        """No name is listed twice."""
        if len(set(names)) == len(names):
            return
        seen: set[str] = set()
        for index, name in enumerate(names):
            if name in seen:
                self.problem(f"{path}[{index}]{field}", "duplicate", f"`{name}` is listed twice")
            seen.add(name)

    def _meant(self, name: str, known: Container[str]) -> str:
        """The known name that is most like an unknown one, as a question; or nothing."""
        if self._suggested >= _SUGGESTED or not isinstance(known, Iterable):
            return ""
        self._suggested += 1
        return meant(name, known)
