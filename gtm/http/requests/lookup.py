"""Look-ups as they are asked: the parameters of `GET /v1/route`, and the body of `POST /v1/route:batch`.

Law: a request is understood completely or rejected. A misspelt parameter that was quietly dropped could be the one
that keeps a request inside its fence.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from gtm.core.memory import Memory
from gtm.core.model.services import Priority
from gtm.geoip.address import parse_address
from gtm.geoip.client import ClientAddress
from gtm.http.problems import ProblemError
from gtm.nesting import ShapeError, read

MAX_BATCH = 1000
MAX_BATCH_BYTES = 1024 * 1024
MAX_VALUE = 256
"""Longest value of a parameter, in characters."""

_OWN = 500
"""Bytes that a query read takes besides its text, about."""
_TEXTS = ("service", "client_ip", "tenant", "data_class", "model", "affinity", "priority", "host")
_ALL = (*_TEXTS, "explain")
_FLAGS = {"1": True, "true": True, "0": False, "false": False}


class Lookup(NamedTuple):
    """One question. `client_ip` None: about the caller itself.

    `host` is a host name of the service, which may state a tenant or data class; None: none is known.
    """

    service: str
    client_ip: ClientAddress | None = None
    tenant: str | None = None
    data_class: str | None = None
    model: str | None = None
    affinity: str | None = None
    explain: bool = False
    priority: Priority | None = None
    host: str | None = None


def parse_query(query: bytes) -> Lookup:
    """Read a query string.

    Raises:
        ProblemError: an unknown, repeated, empty or missing parameter, or one that is not what it should be.
    """
    try:
        pairs = parse_qsl(
            query.decode(), keep_blank_values=True, errors="strict", max_num_fields=2 * len(_ALL)
        )
    except UnicodeDecodeError as error:
        raise ProblemError(
            "invalid_request", "the query is not valid utf-8 after percent-decoding"
        ) from error
    except ValueError as error:
        raise ProblemError(
            "invalid_request", f"the query has too many parameters; known are {_known()}"
        ) from error
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise ProblemError("invalid_request", f"parameter `{name}` is given twice")
        values[name] = value
    explain = values.get("explain", "0")
    if explain not in _FLAGS:
        raise ProblemError("invalid_request", f"`explain` is `{_cut(explain)}`; it can be 1 or 0")
    return _lookup({**values, "explain": _FLAGS[explain]})


class Queries:
    """Query strings that were read before, but for whom they ask about: those of many clients differ in nothing else.

    Law: `read` does what `parse_query` does. The address is cut out only where it is a whole parameter's value of
    digits, letters, dots and colons, which stand for themselves. What stands around it was read with another address
    before, and holds no second one, or it would have been rejected.

    Args:
        room: bytes of what is remembered, about.
    """

    def __init__(self, room: int = 1024 * 1024) -> None:
        self._known: Memory[tuple[bytes, bytes | None], Lookup] = Memory(
            _around, room, lambda key, _: _OWN + len(key[0]) + len(key[1] or b"")
        )

    def read(self, query: bytes) -> Lookup:
        """Read a query string.

        Raises:
            ProblemError: as `parse_query`.
        """
        before, named, rest = query.partition(b"client_ip=")
        if not named:
            return self._known[query, None]
        text, more, after = rest.partition(b"&")
        if before and not before.endswith(b"&"):  # it is a part of another one
            return parse_query(query)
        try:
            client = ClientAddress.plain(text.decode("latin-1"))
        except ValueError:
            return parse_query(query)
        known = self._known[before, more + after]
        # As `known._replace(client_ip=client)`, in a third of the time.
        asked: Lookup = tuple.__new__(Lookup, (known[0], client, *known[2:]))
        return asked


def _around(key: tuple[bytes, bytes | None]) -> Lookup:
    """What a query asks for, of which this stands before and after the address; None: it has none."""
    before, after = key
    return parse_query(before if after is None else b"%bclient_ip=192.0.2.1%b" % (before, after))


def parse_item(item: Any) -> Lookup:
    """Read one item of a batch.

    Raises:
        ProblemError: as `parse_query`.
    """
    if not isinstance(item, dict):
        raise ProblemError("invalid_request", "a request must be a json object")
    given = {name: value for name, value in item.items() if value is not None}
    if not isinstance(given.setdefault("explain", False), bool):
        raise ProblemError("invalid_request", "`explain` must be true or false")
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise ProblemError("invalid_request", f"`{name}` must be a string")
    return _lookup(given)


def parse_batch(body: bytes) -> list[Any]:
    """The items of a batch, not looked into yet.

    Raises:
        ProblemError: the body is not `{"requests": [...]}` with at most `MAX_BATCH` items.
    """
    return items_of(body, "requests", MAX_BATCH)


def items_of(body: bytes, name: str, most: int) -> list[Any]:
    """The items of a body that is a list under one name, not looked into yet.

    Raises:
        ProblemError: the body is not `{name: [...]}` with so many items at the most.
    """
    try:
        document = read(body)
    except ShapeError as error:
        raise ProblemError("invalid_request", f"the body is {error}") from error
    except ValueError as error:
        raise ProblemError("invalid_request", f"the body is not valid json: {error}") from error
    items = document.get(name) if isinstance(document, dict) else None
    if not isinstance(items, list) or len(document) != 1:
        raise ProblemError("invalid_request", f'the body must be a json object {{"{name}": [...]}}')
    if len(items) > most:
        raise ProblemError("content_too_large", f"{len(items)} {name} at once; the most accepted is {most}")
    return items


def check_value(name: str, value: str) -> None:
    """Reject an empty or overlong value of the parameter, field or header called `name`.

    Raises:
        ProblemError: with what to do about it.
    """
    if not value:
        raise ProblemError("invalid_request", f"`{name}` is empty; leave it out if it is not known")
    if len(value) > MAX_VALUE:
        raise ProblemError(
            "invalid_request", f"`{name}` has {len(value)} characters; the most accepted is {MAX_VALUE}"
        )


def read_priority(name: str, value: str) -> Priority:
    """The priority in the parameter, field or header called `name`.

    Raises:
        ProblemError: it is none.
    """
    try:
        return Priority(value)
    except ValueError as error:
        known = ", ".join(priority.value for priority in Priority)
        raise ProblemError("invalid_request", f"`{name}` is `{_cut(value)}`; it can be {known}") from error


def _lookup(values: dict[str, Any]) -> Lookup:
    for name, value in values.items():
        if name not in _ALL:
            raise ProblemError("invalid_request", f"unknown parameter `{_cut(name)}`; known are {_known()}")
        if name in _TEXTS:
            check_value(name, value)
    if "service" not in values and "host" not in values:
        raise ProblemError("invalid_request", "parameter `service` is missing (or `host`, a host name of it)")
    client_ip = None
    if "client_ip" in values:
        try:
            client_ip = ClientAddress.of(parse_address(values["client_ip"]))
        except ValueError as error:
            raise ProblemError(
                "invalid_request",
                f"`client_ip` is `{_cut(values['client_ip'])}`, which is not an ipv4 or ipv6 address",
            ) from error
    priority = read_priority("priority", values["priority"]) if "priority" in values else None
    return Lookup(**{"service": "", **values, "client_ip": client_ip, "priority": priority})


def _known() -> str:
    return ", ".join(_ALL)


def _cut(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}…"
