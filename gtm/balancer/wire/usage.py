"""How many tokens a request has used, by what its answer says or shows: for tenants that have budgets of them.

OpenAI's wire format says it at the end of an answer (`usage`), of a stream if the client asks for that (`stream_options:
{include_usage: true}`). A stream that does not say it is counted: an event is a token, as engines send them. Nothing is known of other
answers until they end, so what was expected of these stands if they are cut off.

Text that a model writes cannot pass for it: in JSON its quotes are escaped, and its line ends too.
"""

from __future__ import annotations

import re

_KEPT = 4096
"""Bytes of the end of an answer in which its usage is looked for."""
_EVENT = b"\ndata:"
_BEFORE = len(_EVENT) - 1
_INPUT = re.compile(rb'"(?:prompt_tokens|input_tokens)"\s*:\s*([0-9]{1,9})(?![0-9])')
_OUTPUT = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*([0-9]{1,9})(?![0-9])')


class Meter:
    """Of one answer, as it came from the backend, in whatever pieces."""

    __slots__ = ("_events", "_tail")

    def __init__(self) -> None:
        self._tail = b"\n"  # so that what begins with an event begins one
        self._events = 0

    def piece(self, data: bytes) -> None:
        """What the backend sent, framing and all."""
        self._events += (self._tail[-_BEFORE:] + data).count(_EVENT)
        self._tail = data[-_KEPT:] if len(data) >= _KEPT else (self._tail + data)[-_KEPT:]

    def used(self, *, events: bool) -> tuple[int | None, int | None]:
        """Input and output tokens; None: not known.

        Args:
            events: the answer is a stream of them.
        """
        inputs, outputs = _last(_INPUT, self._tail), _last(_OUTPUT, self._tail)
        if outputs is None and events:
            outputs = self._events
        return inputs, outputs


def _last(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None
