"""JSON objects of answers: dicts whose members are attributes too, with types (`gtm.client.types`)."""

from __future__ import annotations

import json
from typing import Any


class JsonObject(dict[str, Any]):
    """A JSON object. A name that Python has a use for goes with an underscore: `one.from_` is the member `from`, `one.items_` the member `items`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):  # what Python asks all objects for
            try:
                return self[name.removesuffix("_")]
            except KeyError:
                pass
        raise AttributeError(f"there is no member `{name}`")


def as_answered(value: Any) -> Any:
    """A value as control would answer it."""
    return json.loads(json.dumps(value), object_hook=JsonObject)
