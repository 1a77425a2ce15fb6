"""Drafts as people write them: YAML, read and checked as `gtm check` does. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.documents.folders import check_references, read_text
from gtm.documents.parts import merged

MOST_PAIRS = 200_000
"""Regions × services and rules of a policy that is compiled as well: more would take seconds."""
MOST_PROBLEMS = 200
"""Problems that are told of one text: who has so many mends some first."""
_CALLED = "draft"
_LINE = re.compile(rf"^{_CALLED}:([0-9]+): ")
_SAID = re.compile(r"^line ([0-9]+), column [0-9]+: ")


@dataclass(frozen=True, slots=True)
class Reading:
    """A text to read.

    Args:
        text: YAML, as in a file of a policy.
        partial: whether resources that it does not hold stay as they are.
        gone: kind and name of what is deleted although it is partial.
        running: the policy in force.
        revision: of that.
    """

    text: str
    partial: bool
    gone: frozenset[tuple[str, str]]
    running: Policy
    revision: int


def read(asked: Reading) -> dict[str, Any]:
    """What is wrong with a text, by line, and what it says."""
    folder = read_text(asked.text, _CALLED, MOST_PROBLEMS)

    def whole(part: Policy) -> Policy:
        return merged(asked.running, part, asked.gone) if asked.partial else part

    problems, compiled = list(folder.problems), not folder.problems
    if compiled:
        compiled = _pairs(whole(folder.document().to_core())) <= MOST_PAIRS
        if compiled:
            problems, _ = check_references(folder, whole)
    policy = None if problems else folder.document().model_dump(mode="json", exclude_unset=True)
    lined = sorted((_lined(one) for one in problems), key=lambda one: one["line"] or 0)
    if len(lined) > MOST_PROBLEMS:
        words = f"there are more than {MOST_PROBLEMS} problems: these are the first"
        lined = [*lined[:MOST_PROBLEMS], _lined(Problem("", "too_many", words))]
    return {"problems": lined, "compiled": compiled, "policy": policy, "revision": asked.revision}


def _pairs(policy: Policy) -> int:
    return len(policy.regions) * (len(policy.services) + len(policy.residency_rules))


def _lined(problem: Problem) -> dict[str, Any]:
    path, message, line = problem.path, problem.message, None
    if found := _LINE.match(path):
        line, path = int(found[1]), path[found.end() :]
    elif path == _CALLED:
        path = ""
        if found := _SAID.match(message):
            line, message = int(found[1]), message[found.end() :]
    return {"path": path, "code": problem.code, "message": message, "line": line}
