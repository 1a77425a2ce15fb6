"""Values → expressions and blocks of HCL, as `terraform fmt` would lay them out.

Ref: https://github.com/hashicorp/hcl/blob/main/hclsyntax/spec.md
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import to_builtins

WIDTH = 100
"""Columns up to which lists and objects stand on one line."""

_STEP = 2
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class Expression(str):
    """What is an expression already, such as a reference: it is written as it stands."""

    __slots__ = ()


def block(head: str, attributes: Mapping[str, Any]) -> str:
    """A block with attributes: `resource "gtm_region" "fra" { … }`."""
    return f"{head} {{\n{_attributes(attributes, _STEP)}}}\n"


def quoted(text: str) -> str:
    """A text as a literal, in the normal form that Terraform makes of all texts (NFC)."""
    text = unicodedata.normalize("NFC", text)
    return '"' + "".join(_character(text, index) for index in range(len(text))) + '"'


def _character(text: str, index: int) -> str:
    char = text[index]
    if char in _SHORT:
        return _SHORT[char]
    if char in "$%" and text[index + 1 : index + 2] == "{":  # it would begin a template
        return char * 2
    # A mark would combine, in the eyes of readers, with the quote or the escape before it.
    combining = unicodedata.category(char).startswith("M")
    if not char.isprintable() or (combining and (index == 0 or not text[index - 1].isalnum())):
        return _escape(char)
    return char


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04X}" if number <= 0xFFFF else f"\\U{number:08X}"


def _attributes(attributes: Mapping[str, Any], indent: int) -> str:
    """A line or more for each; the equals signs of lines that follow each other stand in one column."""
    lines: list[str] = []
    chain: list[tuple[str, str]] = []
    room = WIDTH - indent - max(map(len, attributes), default=0) - len(" = ")
    for name, value in attributes.items():
        text = _expression(value, indent, room)
        if "\n" in text:
            lines += [*_aligned(chain, indent), f"{' ' * indent}{name} = {text}\n"]
            chain = []
        else:
            chain.append((name, text))
    return "".join((*lines, *_aligned(chain, indent)))


def _aligned(chain: Sequence[tuple[str, str]], indent: int) -> list[str]:
    widest = max((len(name) for name, _ in chain), default=0)
    return [f"{' ' * indent}{name:<{widest}} = {text}\n" for name, text in chain]


def _expression(value: Any, indent: int, room: int) -> str:
    if not (value and isinstance(value, (Mapping, list, tuple))):
        return _scalar(value)
    if not _long(value):
        line = _line(value)
        if len(line) <= room:
            return line
    if isinstance(value, Mapping):
        return f"{{\n{_attributes(value, indent + _STEP)}{' ' * indent}}}"
    inner = indent + _STEP
    items = (f"{' ' * inner}{_expression(item, inner, WIDTH - inner)},\n" for item in value)
    return f"[\n{''.join(items)}{' ' * indent}]"


def _long(value: Any) -> bool:
    """Whether something has several lines however short it is: more than one object in a list."""
    if isinstance(value, Mapping):
        return any(_long(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return (
            len(value) > WIDTH or (len(value) > 1 and isinstance(value[0], Mapping)) or any(map(_long, value))
        )
    return False


def _line(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        return "{ " + ", ".join(f"{name} = {_line(item)}" for name, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_line, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    match value:
        case Expression():
            text = str(value)
        case str():
            text = quoted(value)
        case bool():
            text = "true" if value else "false"
        case int() | float():
            text = _number(value)
        case datetime():
            text = quoted(to_builtins(value))  # as control writes it: Terraform compares texts
        case Mapping():
            text = "{}"
        case list() | tuple():
            text = "[]"
        case _:
            raise TypeError(f"not a value of HCL: {value!r}")
    return text


def _number(value: float) -> str:
    """The shortest digits that are read as this number again."""
    text = repr(value)
    return text.removesuffix(".0") if value else "0"
