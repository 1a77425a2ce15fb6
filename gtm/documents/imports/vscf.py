"""vscf, the language of gdnsd's configuration (https://github.com/gdnsd/gdnsd/blob/master/docs/vscf.pod)."""

from __future__ import annotations

import re
from typing import Any

from gtm.documents.imports.parts import ImportProblem, bounded
from gtm.nesting import DEEPER, MAX_DEPTH

_TOKEN = re.compile(
    r"""(?P<space>(?:\s++|\#[^\n]*+)+)
    |(?P<mark>=>|[={}\[\],;])
    |"(?P<quoted>(?:[^"\\]++|\\.)*)"
    |(?P<word>(?:[^\s"\\{}\[\],;=\#]++|\\.)+)""",
    re.VERBOSE | re.DOTALL,
)


def load(text: str) -> dict[str, Any]:
    """A configuration: texts, lists and mappings.

    Raises:
        ImportProblem: it cannot be read, or has a key twice in one mapping; the message names the line.
    """
    return _Reader(bounded(text)).top()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        line, at = 1, 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.end() == at:
                raise ImportProblem(f"line {line}: `{text[at : at + 20]!r}` cannot be read")
            kind = found.lastgroup or "quoted"
            if kind != "space":
                value = found[kind]
                if kind != "mark":
                    value = re.sub(r"\\(\d{3}|.)", _plain, value, flags=re.DOTALL)
                self._tokens.append((kind, value, line))
            line += text.count("\n", at, found.end())
            at = found.end()
        self._next = 0

    def top(self) -> dict[str, Any]:
        """The whole text: a mapping, with or without its braces."""
        braced = self._mark() == "{"
        self._next += braced
        found = self._mapping("}" if braced else None, 0)
        if self._next < len(self._tokens):
            raise self._problem("something follows the end")
        return found

    def _mark(self) -> str | None:
        """The mark that comes next, if one does."""
        kind, value, _ = self._tokens[self._next] if self._next < len(self._tokens) else ("end", "", 0)
        return value if kind == "mark" else None

    def _problem(self, message: str) -> ImportProblem:
        line = self._tokens[min(self._next, len(self._tokens) - 1)][2] if self._tokens else 1
        return ImportProblem(f"line {line}: {message}")

    def _text(self) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] == "mark":
            raise self._problem("a word is expected")
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _mapping(self, end: str | None, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._next < len(self._tokens):
            mark = self._mark()
            if mark is not None and mark == end:
                self._next += 1
                return found
            if mark in (",", ";"):
                self._next += 1
                continue
            key = self._text()
            if key.startswith("$include"):
                raise self._problem("`$include` is not followed: put the files together first")
            if self._mark() not in ("=>", "="):
                raise self._problem(f"`=>` is expected after `{key[:50]}`")
            self._next += 1
            if key in found:
                raise self._problem(f"`{key[:50]}` is given twice")
            found[key] = self._value(depth + 1)
        if end is not None:
            raise self._problem(f"`{end}` is missing at the end")
        return found

    def _value(self, depth: int) -> Any:
        mark = self._mark()
        if mark in ("{", "[") and depth >= MAX_DEPTH:
            raise self._problem(DEEPER)
        if mark == "{":
            self._next += 1
            return self._mapping("}", depth)
        if mark != "[":
            return self._text()
        self._next += 1
        found = []
        while (mark := self._mark()) != "]":
            if mark in (",", ";"):
                self._next += 1
            elif self._next >= len(self._tokens):
                raise self._problem("`]` is missing at the end")
            else:
                found.append(self._value(depth + 1))
        self._next += 1
        return found


def _plain(found: re.Match[str]) -> str:
    """What an escape stands for: an octet in decimal, or the character itself."""
    text = found[1]
    return chr(int(text)) if text.isdigit() and len(text) == 3 and int(text) < 256 else text
