"""Who serves a model, by the file and by what servers say that they have: for choosing, and for whose failures are compared.

Laws:
  1. A server that the file names for a model serves it, loaded or not. A server that the file names for none serves any; but where some server is known to
     have the model, one whose own list lacks it does not: it could only say that there is no such model. Whether the one that has it is usable now does not matter.
  2. A name without a tag means the tag `latest` where a server lists that, or the file does (Ollama's rule).
  3. What is unknown shuts nobody out. Nor does a LoRA adapter that is loaded somewhere: others may load it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Protocol, TypeVar

from gtm.core.balance.backends import Backend, Condition


class KnownServer(Protocol):
    """A server, and what is known of it."""

    @property
    def backend(self) -> Backend:
        """The configuration says this of the server."""

    @property
    def condition(self) -> Condition:
        """Checks and requests say this of the server now."""


_Server = TypeVar("_Server", bound=KnownServer)
_LATEST = ":latest"


def named(model: str, names: Container[str]) -> bool:
    """Whether a model is one of the names, or is one of them without its tag `latest`."""
    return model in names or model + _LATEST in names


def known_as(model: str, names: Container[str]) -> str:
    """The one of the names that a model has, with the tag `latest` or without; its own, if none of them is."""
    if model in names:
        return model
    other = model.removesuffix(_LATEST) if model.endswith(_LATEST) else model + _LATEST
    return other if other in names else model


def declares(one: KnownServer, model: str | None) -> bool:
    """Whether the server is there to serve the model, or the LoRA adapter of that name, which it lists."""
    return (
        model is None
        or not one.backend.models
        or _by_file(one, model)
        or named(model, one.condition.adapters or ())
    )


def loaded(condition: Condition, model: str | None) -> bool:
    """Whether it has the model loaded, or the adapter of that name, as far as is known."""
    return (
        model is None
        or condition.models is None
        or named(model, condition.models)
        or named(model, condition.adapters or ())
    )


def serving(servers: Iterable[_Server], model: str | None) -> list[_Server]:
    """Those of the servers that requests for a model may be sent to, whether they are usable now or not."""
    able = [one for one in servers if declares(one, model)]
    if model is None or not any(_names(one, model) for one in able):
        return able
    return [one for one in able if _by_file(one, model) or loaded(one.condition, model)]


def sent_to(servers: Iterable[_Server], model: str | None) -> list[_Server]:
    """Those of the servers that are sent requests for a model while all are usable: who has it loaded comes first."""
    able = serving(servers, model)
    return [one for one in able if loaded(one.condition, model)] or able


def asked_for(one: KnownServer) -> Collection[str]:
    """All names by which models and adapters of the server are asked for, as far as is known."""
    names = one.backend.models or one.condition.models or frozenset()
    names |= one.condition.adapters or frozenset()
    if one.backend.models and one.condition.models:
        names |= {name for name in one.condition.models if _by_file(one, name)}
    return names | {name.removesuffix(_LATEST) for name in names if name.endswith(_LATEST)}


def _by_file(one: KnownServer, model: str) -> bool:
    """Whether the file names the server for the model."""
    names = one.backend.models
    if named(model, names):
        return True
    return (
        model.endswith(_LATEST)
        and model.removesuffix(_LATEST) in names
        and model in (one.condition.models or ())
    )


def _names(one: KnownServer, model: str) -> bool:
    """Whether the file names the server for the model, or the server lists it; as an adapter does not count."""
    return _by_file(one, model) or named(model, one.condition.models or ())
