"""A call as a value: what is sent, and how its answer is read. Making one costs nothing; sessions send it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Item_co = TypeVar("Item_co", covariant=True)


class Content(Enum):
    """The content of an answer."""

    JSON = auto()
    LINES = auto()
    """JSON, one value a line."""
    TEXT = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One request. `T_co` is the type of its answer's value.

    `path` is behind the server's address, its variable parts quoted (`segment`); `parameters` are those of the query and `headers` those of the
    request, the ones that are None left out. `body` is sent as JSON where it is not None. `accept` are statuses from 400 on that are answers too.
    """

    method: str
    path: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Any = None
    content: Content = Content.JSON
    accept: frozenset[int] = frozenset()

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when nobody knows whether it arrived: to read changes nothing, to write the same twice neither."""
        if self.method == "PUT":
            return not any(name.lower().startswith("if-") for name in _given(self.headers))
        return self.method in {"GET", "HEAD"}

    def having(
        self, *, parameters: Mapping[str, Any] | None = None, headers: Mapping[str, str | None] | None = None
    ) -> Self:
        """The same with other parameters or headers besides."""
        return replace(
            self,
            parameters={**self.parameters, **(parameters or {})},
            headers={**self.headers, **(headers or {})},
        )

    @property
    def query(self) -> dict[str, Any]:
        """The query parameters of the call that have a value, as they are written: booleans as in JSON, times in ISO 8601."""
        return {name: _text(value) for name, value in _given(self.parameters).items()}

    @property
    def fields(self) -> dict[str, str]:
        """The headers of the call that have a value."""
        return _given(self.headers)


@dataclass(frozen=True, slots=True)
class PagedCall(Call[T_co], Generic[T_co, Item_co]):
    """The call for a page of a list. `Item_co` is the type of the list's items, `most` how many a page may have."""

    most: int = 1000

    @property
    def largest(self) -> Self:
        """The same for pages as large as they may be, where it does not say how large."""
        return replace(self, parameters={"limit": self.most, **_given(self.parameters)})


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a server said. `headers` are by lower-case name."""

    status: int
    value: T
    headers: Mapping[str, str]

    @property
    def etag(self) -> str | None:
        """The version of what was read or written, for `if_match`; None where it has none."""
        return self.headers.get("etag")

    @property
    def managed_by(self) -> str | None:
        """The tool that manages what was read or written (`terraform/prod-network`); None: none does, or it has no manager."""
        return self.headers.get("gtm-managed-by")


def segment(text: str | int) -> str:
    """A name as one segment of a path. The dots of `..` are quoted as well, so that no name leads elsewhere."""
    quoted = quote(str(text), safe="")
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else value


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
