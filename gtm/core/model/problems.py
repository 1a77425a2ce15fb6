"""What is wrong with a policy: every problem with its path, so that all can be mended at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. `path` locates it in the document (`services.chat.members[0].region`)."""

    path: str
    """The place of the fault: `services.chat.members[0].region`."""
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class PolicyError(Exception):
    """A policy that means nothing, or not what its author thinks. The running revision stays."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
