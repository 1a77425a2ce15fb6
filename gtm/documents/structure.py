"""What is structurally wrong with a document, in words people can act on: pydantic's errors → `Problem`s."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from gtm.core.model.kinds import KINDS
from gtm.core.model.problems import Problem
from gtm.documents.fields import PATTERN_WORDS

_SHOWN = 80

_CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "string_pattern_mismatch": "invalid_format",
    "enum": "invalid_choice",
    "literal_error": "invalid_choice",
    "finite_number": "out_of_range",
    "json_invalid": "invalid_json",
}
_RANGES = frozenset(
    {
        "greater_than_equal",
        "less_than_equal",
        "greater_than",
        "less_than",
        "too_long",
        "too_short",
        "string_too_long",
        "string_too_short",
    }
)
_OBJECT = "must be an object"
_PLAIN = {
    "extra_forbidden": "unknown field: remove it, or check its spelling",
    "string_unicode": "must be valid Unicode text",
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}
_FEW = 6
"""Fields that are listed where none is like an unknown one."""
_NUMBERS = frozenset({"int_type", "float_type"})
_NUMBER = re.compile(r"\s*[-+]?[0-9.]{1,30}([eE][-+]?[0-9]{1,3})?\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIMED = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d)")
_OWN = frozenset({"out_of_range", "invalid_format", "unknown_reference", "wrong_type", "overlap"})


def problems_of(
    error: ValidationError,
    document: Any = None,
    prefix: str | Callable[[Sequence[str | int]], str] = "",
    model: type[BaseModel] | None = None,
) -> list[Problem]:
    """Every error of a validation with its path, such as `services.chat.members[0].weight`.

    Args:
        error: what pydantic found.
        document: what was validated: whole policies are told apart by the names in it rather than by position.
        prefix: put before each path; or what makes it of a place in the document.
        model: what it was validated as: an unknown field is then told from the field it resembles.
    """
    return problems_of_errors(error.errors(include_url=False), document, prefix, model)


def problems_of_errors(
    errors: Sequence[Any],
    document: Any = None,
    prefix: str | Callable[[Sequence[str | int]], str] = "",
    model: type[BaseModel] | None = None,
) -> list[Problem]:
    """Every one of a validation's error dictionaries with its path (`problems_of`). Errors of a union's branches become one."""
    found: dict[str, Problem] = {}
    outer = {tuple(item["loc"][:depth]) for item in errors for depth in range(len(item["loc"]))}
    for item in errors:
        if item["type"] == "too_short" and tuple(item["loc"]) in outer:
            continue  # the list is too short only because its items were rejected
        path = _path(item["loc"], document, prefix if isinstance(prefix, str) else prefix(item["loc"]))
        message = _message(item)
        if item["type"] == "extra_forbidden" and model is not None:
            message += _meant(item["loc"], model)
        problem = Problem(path or "document", _code(item["type"]), message)
        if path in found and found[path].message != problem.message:
            merged = f"{found[path].message}; or: {problem.message}"
            problem = Problem(problem.path, found[path].code, merged)
        found[path] = problem
    return list(found.values())


def _meant(loc: Sequence[str | int], model: type[BaseModel]) -> str:
    """The field of the same object whose name is most like that of an unknown one, as a question; else all of few."""
    models = [model]
    for part in loc[:-1]:
        if isinstance(part, str) and not _is_branch(part):
            fields = [each.model_fields[part] for each in models if part in each.model_fields]
            models = [found for field in fields for found in _models(field.annotation)]
    known = [name for each in models for name in each.model_fields]
    close = get_close_matches(str(loc[-1])[:_SHOWN], known, n=1)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; known are {', '.join(known)}" if 0 < len(known) <= _FEW else ""


def body_models(route: Any) -> list[type[BaseModel]]:
    """What the body of a route's requests is validated as (FastAPI's `APIRoute`); nothing if it has no model."""
    field = getattr(route, "body_field", None)
    return _models(field.field_info.annotation) if field is not None else []


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models within a type, such as that of a list's items."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models(argument)]


def _path(loc: Sequence[str | int], document: Any, prefix: str) -> str:
    path = prefix
    node = document
    for depth, part in enumerate(loc):
        if isinstance(part, str) and _is_branch(part):
            continue
        node = _child(node, part)
        named = (
            depth == 1 and loc[0] in KINDS and isinstance(node, dict) and isinstance(node.get("name"), str)
        )
        if named and node["name"].isprintable():
            path += f".{node['name'][:_SHOWN]}"
        elif isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path and not path.endswith((" ", ":")) else part
    return path


def _is_branch(part: str) -> bool:
    """Whether a part of a location is pydantic's name for a union's branch rather than a field."""
    return (
        part in {"bool", "int", "float", "str", "object"}
        or part.startswith("constrained-")
        or "[" in part
        or "(" in part
    )


def _child(node: Any, part: str | int) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    if isinstance(node, (list, tuple)) and isinstance(part, int) and 0 <= part < len(node):
        return node[part]
    return None


def _code(kind: str) -> str:
    if kind in _OWN:
        return kind
    if kind in _RANGES:
        return "out_of_range"
    if kind in _CODES:
        return _CODES[kind]
    return "wrong_type" if kind.endswith("_type") else "invalid"


def _message(item: Any) -> str:
    kind, given, context = item["type"], item.get("input"), item.get("ctx", {})
    if kind == "missing":
        return "is required" if item["msg"] == "Field required" else str(item["msg"])
    if kind in _PLAIN:
        listed = isinstance(given, (list, tuple)) and _PLAIN[kind] == _OBJECT
        return f"{_OBJECT} (`field: value`), not a list" if listed else _PLAIN[kind]
    if kind in _OWN:
        return str(item["msg"])
    if kind == "string_pattern_mismatch":
        words = PATTERN_WORDS.get(context.get("pattern", ""), f"must match {context.get('pattern')}")
        return f"`{_shown(given)}` {words}"
    if kind in _NUMBERS and isinstance(given, str) and _NUMBER.fullmatch(given):
        return f"must be a number, and `{_shown(given)}` in quotes is text: remove the quotes"
    if kind in _NUMBERS and isinstance(given, str) and (timed := _TIMED.fullmatch(given)) is not None:
        seconds = float(timed[1]) * _UNITS[timed[2]]
        return f"must be a number without a unit, not `{_shown(given)}`: times are in seconds unless the field's name says otherwise, so write `{seconds:g}`"
    return _in_words(item)


def _in_words(item: Any) -> str:
    """Pydantic's own message, made to read like the others."""
    kind, given, context = item["type"], item.get("input"), item.get("ctx", {})
    if kind in {"too_short", "too_long"}:
        limit = context.get("min_length", context.get("max_length"))
        least = "least" if kind == "too_short" else "most"
        return f"needs at {least} {limit} item{'' if limit == 1 else 's'}"
    text = str(item["msg"]).removeprefix("Value error, ")
    text = text.replace("Input should", "must").replace("must have", "needs")
    text = text[:1].lower() + text[1:]
    plain = given is None or isinstance(given, (str, int, float, bool))
    return f"{text}, not `{_shown(given)}`" if plain and kind != "json_invalid" else text


def _shown(given: Any) -> str:
    text = str(given).lower() if given is None or isinstance(given, bool) else str(given)
    text = "null" if given is None else text
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
