"""gtm for programs: control's API and edges' look-ups, typed, for threads and for asyncio.

    from gtm.client import Control, NotFound

    with Control("https://gtm.example.com", token) as control:
        region = control.get_regions("fra")
        control.put_regions("fra", {**region, "reserve": 0.2}, comment="more room for failover")
        for service in control.list_services():
            print(service["name"])

    from gtm.client import Lookup

    lookup = Lookup(["https://edge-1.example.com", "https://edge-2.example.com"], token)
    answer = lookup.route(service="chat", client_ip="81.2.69.142")
    print(answer["region"], answer["endpoint"]["url"])

A method for each operation, by its `operationId`; values are dicts with attributes and types (`gtm.client.types`), lists go through all pages, problem documents are exceptions
(`gtm.client.errors`). Where more than the value matters, a call is sent as one: `control.send(calls.get_regions("fra"))` has status, headers and the entity tag.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gtm.client.calls import Answer, Call
from gtm.client.control import AsyncControl, Control
from gtm.client.edge import AsyncEdge, Edge
from gtm.client.errors import (
    BadRequest,
    Conflict,
    ConnectionFailed,
    Fault,
    Forbidden,
    GtmError,
    Invalid,
    Misdirected,
    NotFound,
    NotGtm,
    PreconditionFailed,
    ProblemError,
    RefusedByLaw,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UsageError,
)
from gtm.client.generated import control_calls as calls
from gtm.client.generated import edge_calls
from gtm.client.lookup import AsyncLookup, Lookup
from gtm.client.retries import NEVER, PATIENT, Retries
from gtm.client.sessions import Options

if TYPE_CHECKING:
    from gtm.client.generated import control_types as types
    from gtm.client.generated import edge_types

__all__ = [
    "NEVER",
    "PATIENT",
    "Answer",
    "AsyncControl",
    "AsyncEdge",
    "AsyncLookup",
    "BadRequest",
    "Call",
    "Conflict",
    "ConnectionFailed",
    "Control",
    "Edge",
    "Fault",
    "Forbidden",
    "GtmError",
    "Invalid",
    "Lookup",
    "Misdirected",
    "NotFound",
    "NotGtm",
    "Options",
    "PreconditionFailed",
    "ProblemError",
    "RefusedByLaw",
    "Retries",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UsageError",
    "calls",
    "edge_calls",
    "edge_types",
    "types",
]


_TYPES = {"types": "control_types", "edge_types": "edge_types"}


def __getattr__(name: str) -> Any:
    """Types are read when they are asked for: annotations need them, running programs seldom do, and it takes as long as all the rest."""
    if name not in _TYPES:
        raise AttributeError(f"module `gtm.client` has no attribute `{name}`")
    return import_module(f"gtm.client.generated.{_TYPES[name]}")
