"""Writes `gtm/client/generated`: the types and calls of gtm's APIs, from their OpenAPI documents (`make client`).

A test fails while what is there is not what would be written. Nothing is decided here but how names and types look in Python: what is said of a call,
a parameter or a field is the document's own words.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gtm.api.app import create_app
from gtm.core.model.requests import Location
from gtm.http.description import document as edge
from gtm.storage.session import Database
from tests.worlds.process import SETTINGS

TARGET = Path("gtm/client/generated")
_OF_MACHINES = frozenset({"feed", "report", "balancer_feed", "report_balancer", "report_room"})
"""What edges and balancers say and hear: a protocol of their own, not for people's programs."""
_LONGEST_LITERAL = 40
"""Values of an enumeration that are written out; of more, such as countries, it is a string."""
_WIDTH = 108
_MOST = 1000
"""Items of a page, as `PagedCall` has it."""


@cache
def control_document() -> dict[str, Any]:
    """The OpenAPI document of control; that of edges is `gtm.http.description`'s."""
    nowhere = Database("postgresql+psycopg://nobody@127.0.0.1:9/none")
    return create_app(nowhere, SETTINGS, lambda _: Location()).openapi()


def sources() -> dict[str, str]:
    """File name → text of all that is generated, formatted."""
    found = {**written(control_document(), "control"), **written(edge.document(), "edge")}
    found["__init__.py"] = '"""Written by `make client` from the OpenAPI documents; do not edit."""\n'
    return {name: _formatted(text) for name, text in sorted(found.items())}


def written(document: Mapping[str, Any], name: str) -> dict[str, str]:
    """The modules of one API, as yet without their final shape."""
    calls = list(operations(document))
    return {
        f"{name}_types.py": _types(document),
        f"{name}_calls.py": _calls(calls, name),
        f"{name}_methods.py": _methods(calls, name),
    }


# Types


def type_name(component: str) -> str:
    """`ResourcePage_RegionDocument_` → `ResourcePageRegionDocument`."""
    return "".join(part[:1].upper() + part[1:] for part in component.split("_"))


def python_type(schema: Mapping[str, Any], prefix: str = "") -> str:
    """The type of what a schema describes; names of components begin with `prefix`."""
    if "$ref" in schema:
        return prefix + type_name(schema["$ref"].rpartition("/")[2])
    kind = schema.get("type")
    several = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(kind, list):
        several = [{**schema, "type": one} for one in kind]
    if several is not None:
        return _union(python_type(one, prefix) for one in several)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if 0 < len(values) <= _LONGEST_LITERAL:
        return f"Literal[{', '.join(map(repr, values))}]"
    return _plain_type(schema, str(kind), prefix)


def _plain_type(schema: Mapping[str, Any], kind: str, prefix: str) -> str:
    if kind == "array":
        return f"list[{python_type(schema.get('items', {}), prefix)}]"
    if kind == "object":
        held = schema.get("additionalProperties")
        return f"dict[str, {python_type(held, prefix) if isinstance(held, Mapping) else 'Any'}]"
    plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
    return plain.get(kind, "Any")


def _union(types: Iterable[str]) -> str:
    found = list(dict.fromkeys(types))
    return "Any" if "Any" in found else " | ".join(sorted(found, key=lambda one: one == "None"))


def _types(document: Mapping[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    parts = [
        f'"""What {document["info"]["title"]} takes and answers, by its OpenAPI document. Written by `make client`."""',
        "from __future__ import annotations",
        "from typing import Any, Literal, NotRequired, TypeAlias, TypedDict",
        "from gtm.client.objects import JsonObject",
    ]
    asked = _asked(document)
    for component, schema in sorted(schemas.items()):
        parts.append(_type(type_name(component), schema, answer=component not in asked))
    return "\n\n".join(parts) + "\n"


def _asked(document: Mapping[str, Any]) -> set[str]:
    """The components that bodies of requests are made of: people write them as dicts."""
    bodies = [
        one.get("requestBody", {}) for methods in document["paths"].values() for one in methods.values()
    ]
    found, left = set(), list(_components(bodies))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _components(document["components"]["schemas"][name])
    return found


def _components(schema: Any) -> Iterator[str]:
    """The components that a schema refers to."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        schema = schema.values()
    if not isinstance(schema, str) and isinstance(schema, Iterable):
        for one in schema:
            yield from _components(one)


def _type(name: str, schema: Mapping[str, Any], *, answer: bool) -> str:
    properties = schema.get("properties")
    if properties is None:
        said = _docstring(schema.get("description", ""), "")
        return f"{name}: TypeAlias = {python_type(schema)}" + (f"\n{said}" if said else "")
    required = set(schema.get("required", ()))
    if answer:
        return _record(name, schema, properties)
    if not all(one.isidentifier() and not keyword.iskeyword(one) for one in properties):
        fields = ", ".join(
            f'"{one}": "{_presence(python_type(what), one in required)}"' for one, what in properties.items()
        )
        return f'{name} = TypedDict("{name}", {{{fields}}})'
    lines = [f"class {name}(TypedDict):", _docstring(schema.get("description", "") or f"{name}.", "    ")]
    for one, what in properties.items():
        lines.append(f"    {one}: {_presence(python_type(what), one in required)}")
        if what.get("description"):
            lines.append(_docstring(what["description"], "    "))
    return "\n".join(lines)


def _record(name: str, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    """A class of answers, whose members are attributes (`gtm.client.objects`)."""
    lines = [f"class {name}(JsonObject):", _docstring(schema.get("description", "") or f"{name}.", "    ")]
    for one, what in properties.items():
        taken = one in dir(dict) or keyword.iskeyword(one)
        lines.append(f"    {one}{'_' * taken}: {python_type(what).replace('dict[str, Any]', 'JsonObject')}")
        if what.get("description"):
            lines.append(_docstring(what["description"], "    "))
    return "\n".join(lines)


def _presence(kind: str, required: bool) -> str:
    return kind if required else f"NotRequired[{kind}]"


# Calls


@dataclass(frozen=True)
class Parameter:
    """One parameter. `wire` is its name there, `where` is `path`, `query`, `header` or `body`, `most` the largest that a number may be."""

    name: str
    wire: str
    where: str
    kind: str
    required: bool
    description: str
    most: int | None = None


@dataclass(frozen=True)
class Operation:
    """One operation. `item` is the type of a list's items, None where it has no pages; `value` that of its answer."""

    name: str
    method: str
    path: str
    value: str
    content: str
    item: str | None
    said: str
    parameters: list[Parameter] = field(default_factory=list)

    @property
    def most(self) -> int | None:
        """How many items a page of its list may have."""
        return next((given.most for given in self.parameters if given.name == "limit"), None)


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """What people's programs may ask, in the document's order."""
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            if one["operationId"] not in _OF_MACHINES:
                yield _operation(document, path, method, one)


def _operation(document: Mapping[str, Any], path: str, method: str, one: Mapping[str, Any]) -> Operation:
    value, content = _answer(one["responses"])
    parameters = [_parameter(given) for given in one.get("parameters", ())]
    body = one.get("requestBody")
    if body is not None:
        kind = python_type(body["content"]["application/json"]["schema"], "types.")
        parameters.append(
            Parameter("body", "", "body", kind, bool(body.get("required")), body.get("description", ""))
        )
    said = " ".join(filter(None, (f"{one['summary']}.", one.get("description", ""))))
    item = _item(document, value) if any(given.name == "cursor" for given in parameters) else None
    return Operation(one["operationId"], method.upper(), path, value, content, item, said, parameters)


def _parameter(given: Mapping[str, Any]) -> Parameter:
    schema = given["schema"]
    kind = python_type(schema, "types.").removesuffix(" | None")
    if "date-time" in json.dumps(schema):
        kind = "datetime | str"
    name = re.sub(r"\W", "_", given["name"]).lower().removeprefix("gtm_")
    description = given.get("description") or schema.get("description", "")
    return Parameter(
        name,
        given["name"],
        given["in"],
        kind,
        bool(given.get("required")),
        description,
        schema.get("maximum"),
    )


def _answer(responses: Mapping[str, Any]) -> tuple[str, str]:
    """Type of the value, and the name of its `Content`."""
    said = next(what for status, what in responses.items() if status.startswith("2"))
    content = said.get("content", {})
    for media, what in content.items():
        if media.endswith("json"):
            return python_type(what.get("schema", {}), "types."), "JSON"
        if media.endswith("jsonl"):
            return "Any", "LINES"
    return ("str", "TEXT") if content else ("None", "NOTHING")


def _item(document: Mapping[str, Any], value: str) -> str | None:
    by_name = {type_name(one): what for one, what in document["components"]["schemas"].items()}
    items = by_name[value.removeprefix("types.")]["properties"].get("items")
    return None if items is None else python_type(items["items"], "types.")


def _calls(calls: Iterable[Operation], name: str) -> str:
    parts = [
        f'"""Each call of the {name} API as a value, to be sent by a session. Written by `make client`."""',
        "from __future__ import annotations",
        "from datetime import datetime\nfrom typing import TYPE_CHECKING, Any, Literal",
        "from gtm.client.calls import Call, Content, PagedCall, segment",
        f"if TYPE_CHECKING:\n    from gtm.client.generated import {name}_types as types",
    ]
    return "\n\n".join([*parts, *map(_call, calls)]) + "\n"


def _call(one: Operation) -> str:
    kind, answers = ("Call", one.value) if one.item is None else ("PagedCall", f"{one.value}, {one.item}")
    given = [
        f'"{one.method}"',
        _path(one),
        *_values(one, "query", "parameters"),
        *_values(one, "header", "headers"),
        *(["body=body"] if any(given.where == "body" for given in one.parameters) else []),
        *([] if one.content == "JSON" else [f"content=Content.{one.content}"]),
        *([] if one.item is None or one.most == _MOST else [f"most={one.most}"]),
    ]
    return "\n".join(
        [
            f"def {one.name}({_signature(one)}) -> {kind}[{answers}]:",
            _docstring(one.said, "    ", one.parameters),
            f"    return {kind}({', '.join(given)})",
        ]
    )


def _signature(one: Operation) -> str:
    """Path and body by place, the rest by name; what may be left out is None."""
    ordered = sorted(one.parameters, key=lambda given: not given.required)
    first = [_declared(given) for where in ("path", "body") for given in ordered if given.where == where]
    rest = [_declared(given) for given in ordered if given.where in {"query", "header"}]
    return ", ".join([*first, *(["*", *rest] if rest else [])])


def _declared(given: Parameter) -> str:
    return f"{given.name}: {given.kind}" + ("" if given.required else " | None = None")


def _path(one: Operation) -> str:
    text = re.sub(r"\{(\w+)\}", r"{segment(\1)}", one.path)
    return f'f"{text}"' if text != one.path else f'"{text}"'


def _values(one: Operation, where: str, name: str) -> list[str]:
    given = [f'"{one.wire}": {one.name}' for one in one.parameters if one.where == where]
    return [f"{name}={{{', '.join(given)}}}"] if given else []


# Methods


def _methods(calls: Iterable[Operation], name: str) -> str:
    head = [
        f'"""Each call of the {name} API as a method, for threads and for asyncio. Written by `make client`."""',
        "from __future__ import annotations",
        f"from gtm.client.generated import {name}_calls as calls\nfrom gtm.client.methods import items, lines, value",
        f'class {name.capitalize()}Methods:\n    """What can be asked, one method each."""\n',
    ]
    return "\n\n".join(head) + "\n" + "\n".join(map(_method, calls)) + "\n"


def _method(one: Operation) -> str:
    how = "lines" if one.content == "LINES" else "value" if one.item is None else "items"
    return f"    {one.name} = {how}(calls.{one.name})"


def _docstring(said: str, indent: str, parameters: Iterable[Parameter] = ()) -> str:
    text = said.replace("\\", "\\\\").replace('"""', "'''").strip()
    if not text:
        return ""
    lines = textwrap.wrap(text, _WIDTH - len(indent) - 6, break_long_words=False, break_on_hyphens=False)
    described = [one for one in parameters if one.description]
    if described:
        lines += ["", "Args:"]
        for one in described:
            lines += textwrap.wrap(
                f"{one.name}: {one.description}".replace("\\", "\\\\"),
                _WIDTH - len(indent) - 8,
                initial_indent="    ",
                subsequent_indent="        ",
                break_long_words=False,
            )
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""'
    body = "\n".join(f"{indent}{line}".rstrip() for line in lines[1:])
    return f'{indent}"""{lines[0]}\n{body}\n{indent}"""'


def _formatted(text: str) -> str:
    for command in (["check", "--fix", "--exit-zero", "-q"], ["format", "-q"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET / "x.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = ran.stdout
    return text


def main() -> None:
    """Write them."""
    TARGET.mkdir(parents=True, exist_ok=True)
    found = sources()
    for old in TARGET.glob("*.py"):
        if old.name not in found:
            old.unlink()
    for name, text in found.items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
