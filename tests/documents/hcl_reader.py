"""A reader of as much of HCL as exports are written in, for comparison: blocks, attributes, literals, references."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""(?P<space>[ \n]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*")
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*)
      | (?P<sign>[{}\[\]=,])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\u([0-9A-F]{4})|\\U([0-9A-F]{8})|\\([nrt"\\])|([$%])\4\{')
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Reference:
    """A name of something else: `gtm_region.fra.name`."""

    text: str


@dataclass
class Block:
    """`head "label" "label" { … }`; attributes and inner blocks in one."""

    head: str
    labels: tuple[str, ...]
    body: dict[str, Any] = field(default_factory=dict)


def read(text: str) -> list[Block]:
    """The blocks of a text; anything else is an error."""
    tokens = _tokens(text)
    blocks = []
    while tokens:
        head = tokens.pop()
        labels = []
        while tokens[-1][0] == "text":
            labels.append(unquoted(tokens.pop()[1]))
        blocks.append(Block(head[1], tuple(labels), _body(tokens)))
    return blocks


def unquoted(literal: str) -> str:
    """What a literal in quotes means."""

    def one(found: re.Match[str]) -> str:
        short, long, plain, sign = found.groups()
        return _PLAIN[plain] if plain else f"{sign}{{" if sign else chr(int(short or long, 16))

    inner = literal[1:-1]
    assert not re.search(r"(?<![$%])(?:\$\{|%\{)", _ESCAPE.sub("-", inner)), f"a template: {literal}"
    return _ESCAPE.sub(one, inner)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token, f"unexpected: {text[at : at + 40]!r}"
        at = token.end()
        if token.lastgroup != "space":
            found.append((str(token.lastgroup), token[0]))
    return found[::-1]


def _expect(tokens: list[tuple[str, str]], sign: str) -> None:
    assert tokens.pop()[1] == sign, sign


def _body(tokens: list[tuple[str, str]]) -> dict[str, Any]:
    """Attributes and blocks, one after another; in an object between commas or line ends, which are not told apart here."""
    _expect(tokens, "{")
    body: dict[str, Any] = {}
    while tokens[-1][1] != "}":
        kind, name = tokens.pop()
        assert kind == "name", name
        assert name not in body, f"{name} twice"
        if tokens[-1][1] == "{":
            body[name] = _body(tokens)
        else:
            _expect(tokens, "=")
            body[name] = _value(tokens)
        if tokens[-1][1] == ",":
            tokens.pop()
    tokens.pop()
    return body


def _value(tokens: list[tuple[str, str]]) -> Any:
    kind, text = tokens[-1]
    if text == "{" and kind == "sign":
        return _body(tokens)
    tokens.pop()
    if kind == "text":
        return unquoted(text)
    if kind == "number":
        return float(text) if re.search(r"[.eE]", text) else int(text)
    if kind == "name":
        return _WORDS[text] if text in _WORDS else Reference(text)
    assert text == "[", text
    items = []
    while tokens[-1][1] != "]":
        items.append(_value(tokens))
        if tokens[-1][1] != "]":
            _expect(tokens, ",")
    tokens.pop()
    return items
