"""Which models a region serves, as OpenAI's API lists them: `GET /v1/models`, and `GET /v1/models/NAME`.

Each server lists its own models, and vLLM, SGLang and others say nothing of a single one: where servers differ, or the file says what they serve, the balancer answers. A name may have
slashes, and clients write them plainly (openai-python) or encoded (openai-node): no server reads such a path, so both are taken for the name.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

import msgspec

from gtm.balancer.wire.heads import RequestHead

PATH = b"/v1/models"
ONE = PATH + b"/*"
"""A path that stands for all of single models where it is asked what is carried."""


def asked_of(head: RequestHead) -> str | None:
    """The model that a request asks about, empty: all of them; None: it is no such request."""
    if head.method not in (b"GET", b"HEAD"):
        return None
    path = head.path
    if path == PATH:
        return ""
    if not path.startswith(PATH + b"/"):
        return None
    return unquote_to_bytes(path[len(PATH) + 1 :]).decode("utf-8", "replace") or None


def listed(names: Iterable[str]) -> bytes:
    """A list of models."""
    return msgspec.json.encode({"object": "list", "data": [_card(name) for name in sorted(names)]})


def described(name: str) -> bytes:
    """One model."""
    return msgspec.json.encode(_card(name))


def _card(name: str) -> dict[str, object]:
    """Of a model no more is known than its name; clients' types want the other members."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "gtm"}
