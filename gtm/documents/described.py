"""Models whose fields are described by the strings below them, read when a schema is asked for.

Pydantic can do this (`use_attribute_docstrings`), but reads a class's source when the class is made: that was a sixth of the
time in which control starts, for descriptions that only the OpenAPI document shows.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of models that carry their fields' descriptions into their JSON Schema."""

    __value__: ClassVar[type[Any] | None] = None
    """The dataclass that declares its fields, if one does."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """The model's schema; a field that says its description itself (`Field`) keeps that."""
        found = handler(core_schema)
        for name, schema in handler.resolve_ref_schema(found).get("properties", {}).items():
            text = _description(cls, name)
            if text is not None:
                schema.setdefault("description", text)
        return found


def _description(model: type[Any], field: str) -> str | None:
    """What stands below a field in the class that declares it last; None: nothing."""
    for each in model.__mro__[: model.__mro__.index(Described)]:
        for declared in filter(None, (each, each.__dict__.get("__value__"))):
            known = field_texts(declared.__module__).get(declared.__qualname__, {})
            if field in known:
                return known[field]
    return None


@cache
def field_texts(module: str) -> dict[str, dict[str, str | None]]:
    """Each class on a module's top level → each annotated name in it → the string below it; nothing without a source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {node.name: _strings(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _strings(declared: ast.ClassDef) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for node, after in zip(declared.body, [*declared.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) else None
            found[node.target.id] = inspect.cleandoc(text) if isinstance(text, str) else None
    return found
