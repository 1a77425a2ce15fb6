"""YAML as policies use it: the core schema of YAML 1.2, with bounds.

YAML 1.1 reads Norway's country code `NO` as false, `12:30` as 750 and dates as dates. Here only `true` and `false` are
booleans and everything else that is not a number or null is text. Duplicate keys are errors, since the second would
silently replace the first.

Law: what comes of a text, and what it takes to read it, is bounded by the text's length, whatever its anchors and merge keys make of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from gtm.nesting import DEEPER, MAX_DEPTH

MAX_BYTES = 10 * 1024 * 1024
MAX_NODES = 1_000_000
"""Most values a file may hold once its anchors are expanded."""
MAX_GROWTH = 10
"""Each of a text's bytes may become so many by anchors, which stand for what they name; without them it is never more than two."""
FREE_GROWTH = 256 * 1024
"""A short text may become so many bytes."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """The text is not acceptable YAML; the message says where (line and column from 1) and why."""


class _Loader(_Base):  # type: ignore[misc]  # libyaml's loader where PyYAML has it
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
    if len(text) > MAX_BYTES:
        raise YamlError(f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    documents: list[tuple[Any, Marks]] = []
    most = max(FREE_GROWTH, MAX_GROWTH * len(text))
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                most -= _check(node, {}, (), most).letters
                marks = Marks(node)
                documents.append((loader.construct_document(node), marks))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        tabs = "; YAML is indented by spaces, never by tabs" if _at_tab(text, mark) else ""
        raise YamlError(f"{where}{error.problem or error.context or 'not YAML'}{tabs}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError(f"not YAML in UTF-8: {' '.join(str(error).split())}") from error
    except (ValueError, TypeError) as error:
        raise YamlError(f"not acceptable YAML: {error}") from error
    return documents


def _at_tab(text: str | bytes, mark: Any) -> bool:
    """Whether a line on which reading stopped is indented by a tab."""
    lines = (text if isinstance(text, bytes) else text.encode()).splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else b""
    return b"\t" in line[: len(line) - len(line.lstrip())]


def _check_depth(text: str | bytes) -> None:
    """Reject nesting before nodes are made of it: libyaml's composer recurses in C, and overflows the stack."""
    depth = 0
    events: Any = yaml.parse(text, Loader=_Loader)
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark: Any = event.start_mark
                raise yaml.MarkedYAMLError(problem=DEEPER, problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Size(NamedTuple):
    """How much is under a node with its anchors expanded: values, letters with a separator for each value, levels."""

    values: int
    letters: int
    levels: int


def _check(node: yaml.Node, known: dict[int, _Size], trail: tuple[int, ...], most: int) -> _Size:
    """Measure what is under a node; reject what is too much, and more than `most` letters."""
    if id(node) in trail:
        raise _error("an anchor contains itself", node)
    size = known.get(id(node)) or _measured(node, known, (*trail, id(node)), most)
    if len(trail) + size.levels > MAX_DEPTH:
        raise _error(DEEPER, node)
    known[id(node)] = size
    return size


def _measured(node: yaml.Node, known: dict[int, _Size], trail: tuple[int, ...], most: int) -> _Size:
    values, letters, levels = 1, 1, 0
    below: Iterable[yaml.Node] = ()
    if isinstance(node, yaml.MappingNode):
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key must be a plain word", key)
            if (key.tag, key.value) in keys:
                raise _error(f"`{key.value}` is given twice", key)
            keys.add((key.tag, key.value))
            letters += 1 + len(key.value)
        values += len(node.value)
        below = (value for _, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    elif isinstance(node, yaml.ScalarNode):
        letters += len(node.value)
    for one in below:
        found = _check(one, known, trail, most)
        values, letters, levels = values + found.values, letters + found.letters, max(levels, found.levels)
        if letters > most:
            raise _error(f"anchors make more of it than {MAX_GROWTH} times what is written", node)
    if values > MAX_NODES:
        raise _error(f"more than {MAX_NODES} values", node)
    return _Size(values, letters, levels + isinstance(node, yaml.CollectionNode))


def _error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def dump(value: Any) -> str:
    """YAML text that this loader and YAML 1.1 loaders read alike, in the order given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text
