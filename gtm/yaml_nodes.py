"""YAML from outside as a graph of nodes, with bounds on what is made of it.

Law: what comes of a text, and what it takes to read it, is bounded by the text's length, whatever its anchors and merge keys make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import yaml

from gtm.nesting import DEEPER, MAX_DEPTH

MAX_BYTES = 10 * 1024 * 1024
MAX_NODES = 1_000_000
"""Most values a file may hold once its anchors are expanded."""
MAX_GROWTH = 10
"""Each of a text's bytes may become so many by anchors, which stand for what they name; without them it is never more than two."""
FREE_GROWTH = 256 * 1024
"""A short text may become so many bytes."""

BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML has it."""

_Made = TypeVar("_Made")


class YamlError(Exception):
    """The text is not acceptable YAML; the message says where (line and column from 1) and why."""


def read_nodes(
    text: str | bytes,
    make: Callable[[Any, yaml.Node], _Made],
    loader_class: Any = BaseLoader,
    *,
    keys_once: bool = True,
) -> list[_Made]:
    """What is made of each document in a text (one after each `---`).

    Args:
        text: as it came.
        make: takes the loader and a document's node, which keeps to all bounds.
        loader_class: of PyYAML's interface.
        keys_once: a key twice in one mapping is refused; else `make` has to look for it.

    Raises:
        YamlError: not YAML, not UTF-8, too large, too deep, or with a key twice in one mapping.
    """
    if len(text) > MAX_BYTES:
        raise YamlError(f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    made: list[_Made] = []
    most = max(FREE_GROWTH, MAX_GROWTH * len(text))
    try:
        _check_depth(text)
        loader = loader_class(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                most -= _Check(most, keys_once=keys_once).size(node, ()).letters
                made.append(make(loader, node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        tabs = "; YAML is indented by spaces, never by tabs" if _at_tab(text, mark) else ""
        raise YamlError(f"{where}{error.problem or error.context or 'not YAML'}{tabs}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError(_unreadable(text) or f"not YAML in UTF-8: {' '.join(str(error).split())}") from error
    except (ValueError, TypeError) as error:
        raise YamlError(f"not acceptable YAML: {error}") from error
    return made


def _unreadable(text: str | bytes) -> str:
    """Where a text has what YAML has not, and what to do; empty: nowhere."""
    content = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    try:
        letters = content.decode()
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        return f"line {line}: not YAML in UTF-8: byte 0x{byte:02x}: save the file as UTF-8, not as Windows-1252 or Latin-1"
    odd = yaml.reader.Reader.NON_PRINTABLE.search(letters.removeprefix("\ufeff"))
    if odd is None:
        return ""
    line = letters.count("\n", 0, odd.start()) + 1
    remedy = "save the file as UTF-8, not as UTF-16" if odd[0] == "\0" else "take it out"
    return f"line {line}: not YAML in UTF-8: the control character U+{ord(odd[0]):04X}: {remedy}"


def _at_tab(text: str | bytes, mark: Any) -> bool:
    """Whether a line on which reading stopped is indented by a tab."""
    lines = (text if isinstance(text, bytes) else text.encode()).splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else b""
    return b"\t" in line[: len(line) - len(line.lstrip())]


def _check_depth(text: str | bytes) -> None:
    """Reject nesting before nodes are made of it: libyaml's composer recurses in C, and overflows the stack."""
    depth = 0
    events: Any = yaml.parse(text, Loader=BaseLoader)
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


class _Check:
    """Measures what is under nodes; rejects what is too much, and more than `most` letters."""

    def __init__(self, most: int, *, keys_once: bool) -> None:
        self._most, self._keys_once = most, keys_once
        self._known: dict[int, _Size] = {}

    def size(self, node: yaml.Node, trail: tuple[int, ...]) -> _Size:
        """How much is under a node that stands below those of the trail."""
        if id(node) in trail:
            raise _error("an anchor contains itself", node)
        size = self._known.get(id(node)) or self._measured(node, (*trail, id(node)))
        if len(trail) + size.levels > MAX_DEPTH:
            raise _error(DEEPER, node)
        self._known[id(node)] = size
        return size

    def _measured(self, node: yaml.Node, trail: tuple[int, ...]) -> _Size:
        values, letters, levels = 1, 1, 0
        below: Iterable[yaml.Node] = ()
        if isinstance(node, yaml.MappingNode):
            letters += self._keys(node)
            values += len(node.value)
            below = (value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        elif isinstance(node, yaml.ScalarNode):
            letters += len(node.value)
        for one in below:
            found = self.size(one, trail)
            values, letters = values + found.values, letters + found.letters
            levels = max(levels, found.levels)
            if letters > self._most:
                raise _error(f"anchors make more of it than {MAX_GROWTH} times what is written", node)
        if values > MAX_NODES:
            raise _error(f"more than {MAX_NODES} values", node)
        return _Size(values, letters, levels + isinstance(node, yaml.CollectionNode))

    def _keys(self, node: yaml.MappingNode) -> int:
        """Letters of a mapping's keys, with a separator for each."""
        keys: set[tuple[str, str]] = set()
        letters = 0
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key must be a plain word", key)
            if self._keys_once and (key.tag, key.value) in keys:
                raise _error(f"`{key.value}` is given twice", key)
            keys.add((key.tag, key.value))
            letters += 1 + len(key.value)
        return letters


def _error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)
