"""A folder of YAML and JSON files → a policy, with every problem and where it is.

Files are mappings from kinds (`regions`, `services`, …) to lists of objects; several files merge by concatenation. Which
files are read, `gtm.documents.policy_files` says. `expect.yaml` holds expected decisions instead (`gtm.documents.check`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.documents import yamls
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.policy_files import Files, policy_files, shown
from gtm.documents.resources import MAX_RESOURCES, ResourceDocument
from gtm.documents.schema import DOCUMENTS, PolicyDocument
from gtm.documents.structure import problems_of

_NAME_ENDS = re.compile(r"[.\[]")
_STEP = re.compile(r"[^.\[\]]+")
_UNREAD = frozenset({"invalid_yaml", "unreadable", "too_large"})
"""Problems of whole files: any name may be in what was not read."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a document stands: its file, and its path within that (`("regions", 3)`)."""

    file: str
    marks: yamls.Marks
    path: tuple[str | int, ...]

    def at(self, loc: Sequence[str | int] = ()) -> str:
        """`FILE:LINE` of a value in the document."""
        return f"{self.file}:{self.marks.line((*self.path, *loc))}"


@dataclass(slots=True)
class Folder:
    """What was read: documents by kind, the file of each name, and everything that was wrong.

    `found` are its files. `firsts` has by path where a document of that name stood first. `rejected` are the names of documents that were left out: what refers to them is not wrong because of
    that. `said` are the kinds that any file has, if only with an empty list.
    """

    found: Files = field(default_factory=Files)

    documents: dict[str, list[ResourceDocument[Any]]] = field(
        default_factory=lambda: {kind: [] for kind in KINDS}
    )
    files: dict[tuple[str, str], FilePlace] = field(default_factory=dict)
    firsts: dict[str, FilePlace] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)

    def document(self) -> PolicyDocument:
        """All files together as one policy, by kind in the order read."""
        return PolicyDocument.model_validate({kind: tuple(items) for kind, items in self.documents.items()})


def read_folder(path: Path) -> Folder:
    """Read every policy file of a folder (or just one file), structure checked, references not yet.

    Problems are in the result; each path begins with its file's. That no file says anything is one: an empty policy, which
    deletes all that there is, has to be written.
    """
    files = policy_files(path)
    folder = Folder(found=files, problems=list(files.problems))
    for file in files.policy:
        _read_file(folder, file)
    if not folder.said and not folder.problems:
        message = "no policy is in it: give a kind at the least, `services: []` if nothing is meant"
        folder.problems.append(Problem(shown(path), "missing", message))
    return folder


def load_document(path: Path) -> PolicyDocument:
    """Read and check a folder.

    Raises:
        PolicyError: with every problem in it.
    """
    folder = read_folder(path)
    problems, _ = check_references(folder)
    if problems:
        raise PolicyError(problems)
    return folder.document()


def load_folder(path: Path) -> Policy:
    """Read and check a folder; regions without an admin state are active.

    Raises:
        PolicyError: with every problem in it.
    """
    return load_document(path).to_core()


def check_references(
    folder: Folder, within: Callable[[Policy], Policy] | None = None
) -> tuple[list[Problem], Snapshot | None]:
    """All problems of a folder, structural and semantic, and the compiled policy if there are none.

    Args:
        folder: what was read.
        within: makes a whole policy of what the folder holds; None: it is one.
    """
    problems = list(folder.problems)
    snapshot = None
    try:
        policy = folder.document().to_core()
        snapshot = compile_policy(within(policy) if within else policy, shipped_jurisdictions())
    except PolicyError as error:
        unread = next((one.path for one in folder.problems if one.code in _UNREAD), None)
        for problem in error.problems:
            if _follows(folder, problem):
                continue
            found = located(folder, problem)
            if unread is not None and problem.code == "unknown_reference":
                found = replace(
                    found, message=f"{found.message}, unless `{unread}` has it, which cannot be read"
                )
            problems.append(found)
    return problems, snapshot if not problems else None


def _follows(folder: Folder, problem: Problem) -> bool:
    """Whether a problem may be there only because other documents were left out."""
    if not folder.problems:
        return False
    if problem.code in {"missing", "empty_fence"}:
        return True
    return any(f"`{name}`" in problem.message for name in folder.rejected)


def located(folder: Folder, problem: Problem) -> Problem:
    """The problem with its document's file before its path."""
    place = place_of(folder, problem.path)
    if place is None:
        return problem
    first = folder.firsts.get(problem.path) if problem.code == "duplicate" else None
    message = problem.message if first is None else f"{problem.message}: here, and first at {first.at()}"
    return replace(problem, path=f"{place}: {problem.path}", message=message)


def placed(folder: Folder, sentence: str) -> str:
    """A sentence that begins with a path, as warnings do, with its document's file before it."""
    place = place_of(folder, sentence.partition(": ")[0])
    return sentence if place is None else f"{place}: {sentence}"


def place_of(folder: Folder, path: str) -> str | None:
    """`FILE:LINE` of a path in the policy (`services.chat.members[0].region`); None: no file has what it names."""
    kind, _, rest = path.partition(".")
    # Names of zones hold dots themselves: the longest one that fits is meant.
    ends = [len(rest), *(mark.start() for mark in reversed(list(_NAME_ENDS.finditer(rest))))]
    end = next((end for end in ends if (kind, rest[:end]) in folder.files), None)
    if end is None:
        return None
    within = [int(part) if part.isdigit() else part for part in _STEP.findall(rest[end:])]
    return folder.files[kind, rest[:end]].at(within)


def read_yaml(file: Path) -> tuple[list[tuple[Any, yamls.Marks]], list[Problem]]:
    """The documents in a file with where their values stand; or none, and why. A `*.json` file holds one, of JSON and no more."""
    name = shown(file)
    load = yamls.load_json if file.suffix.lower() == ".json" else yamls.load_marked
    try:
        if file.stat().st_size > yamls.MAX_BYTES:
            return [], [Problem(name, "too_large", f"larger than {yamls.MAX_BYTES >> 20} MiB")]
        return load(file.read_bytes()), []
    except OSError as error:
        return [], [Problem(name, "unreadable", (error.strerror or "cannot be read").lower())]
    except yamls.YamlError as error:
        return [], [Problem(name, "invalid_yaml", str(error))]


def read_text(text: str, called: str, most: float = inf) -> Folder:
    """As `read_folder`, of one text that is in no file: in places it goes by the name that it is given.

    Reading ends where more than `most` problems are found.
    """
    folder = Folder()
    try:
        documents = yamls.load_marked(text)
    except yamls.YamlError as error:
        folder.problems.append(Problem(called, "invalid_yaml", str(error)))
    else:
        _read_documents(folder, called, documents, most)
    return folder


def _read_file(folder: Folder, file: Path) -> None:
    documents, problems = read_yaml(file)
    folder.problems += problems
    _read_documents(folder, shown(file), documents)


def _read_documents(
    folder: Folder, file: str, documents: list[tuple[Any, yamls.Marks]], most: float = inf
) -> None:
    for document, marks in documents:
        if document is None:
            continue  # nothing between two `---`, or an empty file
        if isinstance(document, dict):
            for kind, items in document.items():
                _read_kind(folder, kind, items, FilePlace(file, marks, (kind,)), most)
        else:
            message = f"must be a mapping with any of {', '.join(KINDS)}"
            folder.problems.append(Problem(file, "wrong_type", message))
        if len(folder.problems) > most:
            return


def _read_kind(folder: Folder, kind: str, items: Any, place: FilePlace, most: float) -> None:
    if len(folder.problems) > most:
        return
    where = f"{place.at()}: {kind}"
    if kind not in KINDS:
        close = get_close_matches(str(kind), KINDS, n=1)
        meant = f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(KINDS)}"
        message = f"unknown kind{meant}"
        folder.problems.append(Problem(where, "unknown_field", message))
        return
    folder.said.add(kind)
    if items is not None and not isinstance(items, list):
        folder.problems.append(Problem(where, "wrong_type", "must be a list of objects"))
    elif items is not None and len(folder.documents[kind]) + len(items) > MAX_RESOURCES:
        folder.problems.append(Problem(where, "too_many", f"a policy has at most {MAX_RESOURCES} of them"))
        folder.rejected.update(
            name for item in items if isinstance(item, dict) and isinstance(name := item.get("name"), str)
        )
    else:
        for index, item in enumerate(items or ()):
            if len(folder.problems) > most:
                return
            _read_item(folder, kind, item, index, FilePlace(place.file, place.marks, (kind, index)))


def _read_item(folder: Folder, kind: str, item: Any, index: int, place: FilePlace) -> None:
    name = item.get("name") if isinstance(item, dict) else None
    what = f"{kind}.{name}" if isinstance(name, str) and name.isprintable() and name else f"{kind}[{index}]"
    try:
        document = DOCUMENTS[kind].model_validate(item)
    except ValidationError as error:
        folder.problems += problems_of(
            error, prefix=lambda loc: f"{place.at(loc)}: {what}", model=DOCUMENTS[kind]
        )
        if isinstance(name, str):
            folder.rejected.add(name)
        return
    folder.documents[kind].append(document)
    folder.files[kind, document.name] = place
    folder.firsts.setdefault(f"{kind}.{document.name}", place)
