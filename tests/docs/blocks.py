"""The documents' code blocks, and whether what a command printed is what a document shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"\s+# exits with (\d+)$")

_VOLATILE = (
    (r"[ \t]+", " "),
    (r" $", ""),
    (r"\bgtm_[0-9a-f]{10}_[\w…-]+", "TOKEN"),
    (r"\bid [0-9a-f]{10}\b", "id ID"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z)?", "TIME"),
    (r"\b(revision|epoch)(\"?[=:] ?| )\d+", r"\1\2N"),
    (r"(etag: )\"\d+\"", r'\1"N"'),
    (r"(x-gtm-revision: )\d+", r"\1N"),
    (r"\b\d+ ms\b", "N ms"),  # measured latency moves estimates
    (r"(SOA \S+ \S+ )\d+", r"\1N"),
    (r"\s*…\s*", "…"),
)
"""What differs from run to run, and what stands for it on both sides."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a document shows it: what it prints, if shown, and the exit code, if stated."""

    text: str
    shown: str
    code: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A block that is marked as runnable, by `run` behind its language."""

    document: str
    line: int
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def runnable(document: str, mark: str = "run") -> Iterator[Block]:
    """The blocks of a document that are marked as runnable, in order.

    In a `console` block `$` begins a command, `>` goes on with it, and all else is what it prints; `# exits with 1`
    behind a command states its exit code. A `sh` block is one command of which nothing is shown.
    """
    text = (ROOT / document).read_text()
    for found in _FENCE.finditer(text):
        language, *words = found["info"].split()
        if mark not in words:
            continue
        assert language in ("console", "sh"), f"{document}: a {language} block cannot be run"
        line = text.count("\n", 0, found.start()) + 1
        body = found["text"]
        commands = tuple(_console(body)) if language == "console" else (Command(body, ""),)
        assert commands, f"{document}:{line} shows no command"
        yield Block(document, line, commands)


def _console(body: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        more = 1
        while more < len(lines) and lines[more].startswith("> "):
            more += 1
        text = "\n".join([lines[0], *(line[2:] for line in lines[1:more])])
        stated = _EXIT.search(text)
        code = int(stated[1]) if stated else 0
        yield Command(_EXIT.sub("", text), "\n".join(lines[more:]), code)


def difference(shown: str, printed: str) -> str | None:
    """What is wrong with a document's `shown`, given what its command printed; None if they agree.

    They agree if they are the same but for spacing, what differs from run to run, and `…`, which is anything. A document
    that shows nothing claims nothing.
    """
    if not shown.strip():
        return None
    wanted, got = _steady(shown), _steady(printed)
    pattern = ".*".join(re.escape(part) for part in wanted.split("…"))
    if re.fullmatch(pattern, got, re.DOTALL):
        return None
    return f"the document shows\n{wanted}\nbut the command prints\n{got}"


def _steady(text: str) -> str:
    text = text.replace("\r", "").strip()
    for pattern, replacement in _VOLATILE:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text
