"""The models that a server lists: OpenAI's `GET /v1/models`, with vLLM's `parent` for LoRA adapters."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from gtm.adapters.exposition import MetricsError
from gtm.core.capacity.load import MAX_MODELS, MODEL_PATTERN
from gtm.nesting import shallow

MAX_LIST = 1024 * 1024
"""Bytes of a list that are read."""
_NAME = re.compile(MODEL_PATTERN)


@dataclass(frozen=True, slots=True)
class Listed:
    """Names under which it serves models, and LoRA adapters."""

    models: frozenset[str]
    adapters: frozenset[str]


class _Card(msgspec.Struct):
    id: str
    parent: str | None = None


class _List(msgspec.Struct):
    data: list[_Card]


def read_list(body: bytes) -> Listed:
    """What a server lists. Names that are no names are left out.

    Raises:
        MetricsError: it is no such list, or too long.
    """
    if len(body) > MAX_LIST:
        raise MetricsError(f"the list of models is longer than the {MAX_LIST} bytes that are read")
    try:
        found = msgspec.json.decode(shallow(body), type=_List)
    except ValueError as error:
        raise MetricsError(f"this is no list of models: {str(error)[:120]}") from error
    if len(found.data) > MAX_MODELS:
        raise MetricsError(f"the list has more than the {MAX_MODELS} models that are read")
    cards = [card for card in found.data if _NAME.fullmatch(card.id)]
    return Listed(
        frozenset(card.id for card in cards if card.parent is None),
        frozenset(card.id for card in cards if card.parent is not None),
    )
