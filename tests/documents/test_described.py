"""The strings below fields reach JSON Schemas."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import Field

from gtm.documents.described import Described

T = TypeVar("T")


class Part(Described):
    said: int
    """Below the field,
    on two lines."""
    silent: int
    own: int = Field(description="By the field itself.")
    """Not this."""
    nested: Inner | None = None
    """Beside a reference."""


class Inner(Described):
    value: int
    """Further in."""


class Heir(Part):
    said: int
    more: str
    """Of the heir."""


class Of(Described, Generic[T]):
    items: list[T]
    """Of any type."""


def _described(model: type[Described]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {name: said.get("description") for name, said in schema["properties"].items()}


def test_a_string_below_a_field_describes_it() -> None:
    """What a field says by itself goes before."""
    said = {"said": "Below the field,\non two lines.", "silent": None, "own": "By the field itself."}
    assert _described(Part) == {**said, "nested": "Beside a reference."}
    inner = Part.model_json_schema()["$defs"]["Inner"]
    assert inner["properties"]["value"]["description"] == "Further in."


def test_an_heir_keeps_them_but_of_what_it_declares_anew() -> None:
    """As pydantic has it."""
    assert _described(Heir) == {**_described(Part), "said": None, "more": "Of the heir."}


def test_generics_have_them_of_any_type() -> None:
    """A parametrised class has no source of its own."""
    assert _described(Of[int]) == {"items": "Of any type."}


def test_without_a_source_there_are_none() -> None:
    """As of compiled modules without their source."""
    made = type("Made", (Described,), {"__annotations__": {"x": int}, "__module__": "builtins"})
    assert _described(made) == {"x": None}
