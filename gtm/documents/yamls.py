"""YAML as policies use it: the core schema of YAML 1.2, with bounds.

YAML 1.1 reads Norway's country code `NO` as false, `12:30` as 750 and dates as dates. Here only `true` and `false` are
booleans and everything else that is not a number or null is text. Duplicate keys are errors, since the second would
silently replace the first.

Which texts are read at all, `gtm.yaml_nodes` says.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from gtm.nesting import read
from gtm.yaml_nodes import MAX_BYTES, BaseLoader, YamlError, read_nodes

__all__ = ["MAX_BYTES", "Marks", "YamlError", "dump", "load", "load_json", "load_marked"]


class _Loader(BaseLoader):  # type: ignore[misc]  # which of two it is, PyYAML says
    """A loader of its own, so that its resolvers are nobody else's."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's interface


class _Dumper(yaml.SafeDumper):
    """Quotes whatever either version of YAML would not read as text."""


_RESOLVERS = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"^(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)$", [*"-+0123456789"]),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        [*"-+0123456789."],
    ),
    ("null", r"^(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    ("merge", r"^<<$", ["<"]),
)
for _tag, _pattern, _first in _RESOLVERS:
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def _int(loader: Any, node: yaml.ScalarNode) -> int:
    """Decimal even with a leading zero (YAML 1.1 would read octal)."""
    text = loader.construct_scalar(node)
    if len(text) > 30:
        raise yaml.constructor.ConstructorError(None, None, "number too long", node.start_mark)
    return int(text, 16 if text.startswith("0x") else 10)


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    """Without YAML 1.1's sexagesimal numbers and underscores."""
    text = loader.construct_scalar(node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


@dataclass(frozen=True, slots=True)
class Marks:
    """Where the values of a document stand in its file."""

    node: yaml.Node
    _keys: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = field(default_factory=dict)
    """By mapping that was asked about (its `id`), so that thousands of problems in one take no longer than they have to."""

    def line(self, path: Sequence[str | int]) -> int:
        """The line, from 1, of the value at a path of keys and places; of the last one on the way that is there."""
        node, mark = self.node, self.node.start_mark
        for part in path:
            if isinstance(node, yaml.MappingNode):
                known = self._keys.get(id(node))
                if known is None:
                    known = self._keys[id(node)] = {key.value: (key, value) for key, value in node.value}
                found = known.get(str(part))
                if found is None:
                    continue  # of another name: a branch, a default
                mark, node = found[0].start_mark, found[1]
            elif (
                isinstance(node, yaml.SequenceNode) and isinstance(part, int) and 0 <= part < len(node.value)
            ):
                node = node.value[part]
                mark = node.start_mark
            else:
                break
        return int(mark.line) + 1


def load(text: str | bytes) -> list[Any]:
    """The documents in a text (one after each `---`).

    Raises:
        YamlError: as `load_marked`.
    """
    return [document for document, _ in load_marked(text)]


def load_marked(text: str | bytes) -> list[tuple[Any, Marks]]:
    """The documents in a text, with where their values stand.

    Raises:
        YamlError: not YAML, not UTF-8, too large, too deep, or with a key twice in one mapping.
    """
    return read_nodes(text, lambda loader, node: (loader.construct_document(node), Marks(node)), _Loader)


_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half of a surrogate pair, in which JSON escapes a letter, and YAML none."""


def load_json(text: bytes) -> list[tuple[Any, Marks]]:
    """The one document in a text of JSON (RFC 8259), as `load_marked` has it. A byte order mark, which editors write, is passed over.

    Raises:
        YamlError: not JSON in UTF-8, too large, too deep, or with a member twice in one object.
    """
    if len(text) > MAX_BYTES:
        raise YamlError(f"larger than {MAX_BYTES >> 20} MiB")
    text = text.removeprefix(codecs.BOM_UTF8)
    try:
        value = read(text)
    except json.JSONDecodeError as error:
        raise YamlError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise YamlError(f"not acceptable JSON: {error}") from error
    try:
        [(_, marks)] = load_marked(_HALF.sub(rb"\\u0020", text))
    except (ValueError, YamlError):  # JSON may be spaced as YAML is not: then nobody knows a line
        marks = Marks(yaml.ScalarNode("", "", yaml.Mark("", 0, 0, 0, None, 0)))
    return [(value, marks)]


def dump(value: Any) -> str:
    """YAML text that this loader and YAML 1.1 loaders read alike, in the order given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text
