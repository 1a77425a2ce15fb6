"""What a process hands to one that it starts: one document on standard input, for arguments and environments are read by others.

The document is JSON, of a dataclass. Both ends are the same version of gtm: nothing else reads it.
"""

from __future__ import annotations

import sys
from base64 import b64decode
from dataclasses import fields, is_dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

_T = TypeVar("_T")
_NETWORKS = {IPv4Network, IPv6Network}


def document(value: Any) -> bytes:
    """The document of a dataclass that holds others, tuples, paths, networks, and what JSON has."""
    return msgspec.json.encode(value, enc_hook=str)


def read(text: bytes, kind: type[_T]) -> _T:
    """What a document says.

    Raises:
        ValueError: it is no document.
        KeyError: it lacks a field.
    """
    found: _T = _built(kind, msgspec.json.decode(text))
    return found


def received(kind: type[_T]) -> _T:
    """What this process was handed by the one that started it.

    Raises:
        ValueError: nothing, as when that ended meanwhile.
    """
    return read(sys.stdin.buffer.read(), kind)


def _built(kind: Any, plain: Any) -> Any:
    """A value of a type, from what JSON made of it."""
    arguments = get_args(kind)
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{one.name: _built(kinds[one.name], plain[one.name]) for one in fields(kind)})  # type: ignore[operator] # a class
    if get_origin(kind) in (Union, UnionType):
        if {*arguments} == _NETWORKS:
            return ip_network(plain)
        (other,) = (one for one in arguments if one is not NoneType)
        return None if plain is None else _built(other, plain)
    if get_origin(kind) is tuple:
        kinds_ = [arguments[0]] * len(plain) if arguments[-1] is ... else arguments
        return tuple(_built(one, part) for one, part in zip(kinds_, plain, strict=True))
    if kind is bytes:
        return b64decode(plain)
    return kind(plain) if kind is Path or issubclass(kind, Enum) else plain
