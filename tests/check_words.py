"""Hold what a linter does not know of names and docstrings: `python tests/check_words.py`.

- A public class has a name of its own: one meaning a word.
- A docstring says what something is. It does not only point elsewhere ("See above."), and is no riddle that somebody solves who
  has read the code around it ("By whom.", "As it reports.").
- Public methods have docstrings, but for those that override something or that a parser calls: their contract stands where
  they are declared. (So D102 is off in pyproject.toml.)

What offended when the rules were made stands in `words.txt` beside this file, a line each; that list only gets shorter.
`--write` takes out what is mended, and follows what has moved.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
KNOWN = Path(__file__).with_name("words.txt")
LEFT_OUT = "gtm/client/generated/"

POINTERS = re.compile(
    r"(see\b.*|as (above|below|there|`[^`]*`).*|likewise.*|ditto|the same( as .*)?)\.?", re.IGNORECASE
)
"""Docstrings of one line that only lead elsewhere."""
RIDDLES = re.compile(
    r"(by|of|as|for|from|to|in|with|at|on|than|where|when|who|whom|whose|what|which|how|that|it|they|this|these|its|their|them)\b.*",
    re.IGNORECASE,
)
"""How docstrings of at most `FEW` words begin that hang in the air: with a preposition, a relative clause or a pronoun."""
FEW = 5

PLAIN_BASES = frozenset(
    {"object", "Protocol", "Generic", "NamedTuple", "Struct", "Enum", "StrEnum", "IntEnum", "Exception"}
)
"""Bases that declare no method which a class could override, or only such as have no docstring anyway."""

TOLD = {
    "twice": "is the name of another class, too ({others}): one meaning a word. Name it by what it is among all of gtm",
    "pointer": "the docstring only points elsewhere: say in a sentence what it does, or leave the docstring out where it overrides something",
    "riddle": "the docstring cannot be understood without the code around it: write a sentence with a subject and a verb",
    "missing": "a public method without a docstring, that neither overrides anything nor is a parser's callback",
}


@dataclass(frozen=True, slots=True, order=True)
class Offence:
    """One place that breaks a rule."""

    kind: str
    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.file} {self.name}"


def offences(sources: Mapping[str, str]) -> dict[Offence, tuple[int, str]]:
    """Everything that breaks a rule.

    Args:
        sources: file → its text.

    Returns:
        The offences, each with its line and what to do.
    """
    found: dict[Offence, tuple[int, str]] = {}
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for file, text in sources.items():
        tree = ast.parse(text)
        for name, node in _named(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if "." not in name:
                    classes[node.name].append((file, node.lineno))
                for method in _undocumented(node):
                    found[Offence("missing", file, f"{name}.{method.name}")] = method.lineno, TOLD["missing"]
            for said, line in _docstrings(node):
                kind = _kind(said)
                if kind:
                    found[Offence(kind, file, f"{name or 'module'}: {said}")] = line, TOLD[kind]
    for name, places in classes.items():
        for file, line in places if len(places) > 1 else ():
            others = ", ".join(sorted({other for other, _ in places} - {file})[:3]) or "twice in this file"
            found[Offence("twice", file, name)] = line, TOLD["twice"].format(others=others)
    return found


def _named(
    tree: ast.Module,
) -> Iterator[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The module, and each class and function in it, with dotted names."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield name, node
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            waiting.append((f"{name}.{child.name}".lstrip(".") if named else name, child))  # type: ignore[attr-defined]


def _docstrings(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[str, int]]:
    """The docstrings of one line: its own, and those below fields and constants."""
    for statement in node.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            said = statement.value.value
            if isinstance(said, str) and "\n" not in said.strip():
                yield said.strip(), statement.lineno


def _kind(said: str) -> str | None:
    if POINTERS.fullmatch(said):
        return "pointer"
    if len(said.split()) <= FEW and RIDDLES.fullmatch(said):
        return "riddle"
    return None


def _undocumented(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    bases = {re.sub(r"^(typing|msgspec|enum)\.|\[.*", "", ast.unparse(base)) for base in node.bases}
    if bases - PLAIN_BASES:
        return
    for one in node.body:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and not one.name.startswith(("_", "on_")):
            told = {getattr(mark, "attr", getattr(mark, "id", "")) for mark in one.decorator_list}
            if ast.get_docstring(one) is None and not told & {"setter", "overload", "override"}:
                yield one


def sources(checkout: Path) -> dict[str, str]:
    """The package's files, without what is generated."""
    files = sorted((checkout / "gtm").rglob("*.py"))
    texts = {str(file.relative_to(checkout)): file.read_text() for file in files}
    return {name: text for name, text in texts.items() if not name.startswith(LEFT_OUT)}


def judge(found: Mapping[Offence, tuple[int, str]], known: set[str]) -> list[str]:
    """What is new, and what is mended but still listed: a sentence each."""
    said = [
        f"{one.file}:{line}: {one.name}: {why}"
        for one, (line, why) in sorted(found.items())
        if str(one) not in known
    ]
    mended = known - set(map(str, found))
    if mended:
        said.append(
            f"{len(mended)} in words.txt offend no more: python tests/check_words.py --write takes them out"
        )
    return said


def main(arguments: list[str]) -> int:
    """Check; 0 when nothing is new. `--write` renews the list, if it gets no longer."""
    found = offences(sources(CHECKOUT))
    known = set(KNOWN.read_text().splitlines()) if KNOWN.exists() else set()
    if arguments == ["--write"]:
        now, before = (Counter(line.split()[0] for line in lines) for lines in (map(str, found), known))
        longer = [kind for kind in now if KNOWN.exists() and now[kind] > before[kind]]
        if not longer:
            KNOWN.write_text("".join(f"{one}\n" for one in sorted(found)))
            print(f"words.txt: {len(found)} lines")
            return 0
    said = judge(found, known)
    for sentence in said:
        print(sentence, file=sys.stderr)
    if not said:
        print(f"words: nothing new; {len(found)} places of before the rules are left")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
