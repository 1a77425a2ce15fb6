"""How a person sets what servers are told: a flag and a variable for each field of `gtm.settings`, declared beside it.

A field made by `option` says everything of its option: default, help, limits, how what was given is read. Commands make
their options of these (`gtm.cli.servers.declared`), and children get the values as one document
(`gtm.runtime.process.handed`). So a new option is one field, and the place that uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gtm.core.model.access import Role
from gtm.core.model.countries import COUNTRIES
from gtm.secret import SecretKind
from gtm.secret import given as given_secret

_Network = IPv4Network | IPv6Network

_OPTION = "option"
_NONE = "none"  # an empty variable is an unset one
_MAX_TEXT = 255  # RFC 1035 §3.3
_DNS_PORT = 53
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    `default` is what a person would give to get it, `takes` the type that is asked for. `read` makes the field's value of
    what was given; its ValueError says what is wrong with that. Numbers lie between `minimum` and `maximum`. An empty
    `variable` is one by the field's name. A `secret` may stand in a file, too, which an option of its own names.
    """

    help: str
    default: Any
    takes: Any
    read: Callable[[Any], Any]
    variable: str
    minimum: float | None
    maximum: float | None
    secret: SecretKind | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """An option, and the name that it has for people: what is called `nsid` in the field `dns` is `dns_nsid`."""

    name: str
    option: Option

    @property
    def flag(self) -> str:
        """The option's name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The option's name in the environment."""
        return self.option.variable or f"GTM_{self.name.upper()}"

    @property
    def file(self) -> Declared:
        """Of a secret: the option that names a file with it."""
        meaning = f"A file with what {self.flag} would be, alone; read at the start."
        return Declared(f"{self.name}_file", Option(meaning, None, Path | None, _as_given, "", None, None))


def option(
    default: Any,
    meaning: str,
    *,
    takes: Any = None,
    read: Callable[[Any], Any] | None = None,
    variable: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    required: bool = False,
    secret: SecretKind | None = None,
) -> Any:
    """A field of settings that people set by an option (see `Option`).

    Args:
        default: what a person would give to get it.
        meaning: its help.
        takes: the type that is asked for; that of the default if not given.
        read: as it is given, if not given.
        variable: in the environment, where the field's name does not say it.
        minimum: of a number.
        maximum: likewise.
        required: the default is for people; in code, the field has none.
        secret: it is one of this kind (`gtm.secret`), and None by default.
    """
    asked = type(default) if takes is None else takes
    made = Option(meaning, default, asked, read or _as_given, variable, minimum, maximum, secret)
    return field(
        default=MISSING if required else made.read(default), metadata={_OPTION: made}, repr=secret is None
    )


def _as_given(given: Any) -> Any:
    return given


def options(settings: type, prefix: str = "") -> Iterator[Declared]:
    """The options of a class of settings, in the order of its fields; those of a part where the part stands."""
    for one in fields(settings):
        if _OPTION in one.metadata:
            declared = Declared(prefix + one.name, one.metadata[_OPTION])
            yield declared
            if declared.option.secret is not None:
                yield declared.file
        elif is_dataclass(one.default):
            yield from options(type(one.default), f"{one.name}_")


def values(settings: type, given: Callable[[Declared], Any], prefix: str = "") -> dict[str, Any]:
    """The fields of settings that have options, by what was given.

    Raises:
        ValueError: what was given cannot be; the message begins with the option.
    """
    found: dict[str, Any] = {}
    for one in fields(settings):
        if _OPTION in one.metadata:
            found[one.name] = _value(Declared(prefix + one.name, one.metadata[_OPTION]), given)
        elif is_dataclass(one.default):
            part: Any = type(one.default)
            found[one.name] = part(**values(part, given, f"{one.name}_"))
    return found


def _value(declared: Declared, given: Callable[[Declared], Any]) -> Any:
    if declared.option.secret is not None:
        return given_secret(declared.variable, given(declared), given(declared.file), declared.option.secret)
    try:
        return declared.option.read(given(declared))
    except ValueError as error:
        raise ValueError(f"{declared.flag}: {error}") from error


# How what was given is read


def addresses(given: list[str]) -> tuple[str, ...]:
    """Literal IP addresses, from options given several times, with commas, or both.

    Raises:
        ValueError: something else, or nothing.
    """
    found = _parts(given)
    for part in found:
        try:
            ip_address(part)
        except ValueError as error:
            raise ValueError(f"`{part}` is not an IPv4 or IPv6 address") from error
    if not found:
        raise ValueError("give at least one address")
    return found


def places(given: list[str]) -> tuple[tuple[str, int | None], ...]:
    """Literal IP addresses with ports, None where none is given.

    Raises:
        ValueError: something else, or a port that is none.
    """
    return tuple(map(_place, _parts(given)))


def _place(text: str) -> tuple[str, int | None]:
    host, port = text, ""
    if match := re.fullmatch(r"\[(.*)\](?::(\d+))?|([^:]*):(\d+)", text):
        host, port = match[1] or match[3], match[2] or match[4] or ""
    try:
        ip_address(host)
    except ValueError as error:
        raise ValueError(
            f"`{text}` is not an address; write 192.0.2.1, 192.0.2.1:53, 2001:db8::1 or [2001:db8::1]:53"
        ) from error
    if port and int(port) > 65535:
        raise ValueError(f"the port of `{text}` is above 65535")
    return host, int(port) if port else None


def peer_place(text: str) -> tuple[str, int]:
    """A literal address with a port.

    Raises:
        ValueError: something else.
    """
    host, port = _place(text)
    if not port:
        raise ValueError(f"`{text}` has no port; write 192.0.2.1:8088 or [2001:db8::1]:8088")
    return str(ip_address(host)), port


def peer_address(text: str) -> str:
    """An address, with a port or without; `none`; or nothing.

    Raises:
        ValueError: something else.
    """
    if text not in ("", _NONE) and ip_address(_place(text)[0]).is_unspecified:
        raise ValueError(f"`{text}` is every address of this machine; name the one that others reach it at")
    return text


def _parts(given: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


def networks(text: str) -> tuple[_Network, ...]:
    """Networks, separated by commas.

    Raises:
        ValueError: something else.
    """
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


def networks_or_none(text: str) -> tuple[_Network, ...]:
    """The same, where `none` stands for no network at all."""
    return () if text == _NONE else networks(text)


def resolver(text: str) -> tuple[str, int] | None:
    """The address of a resolver, or `ADDRESS:PORT`; None without one.

    Raises:
        ValueError: something else.
    """
    if not text:
        return None
    try:
        return str(ip_address(text)), _DNS_PORT
    except ValueError:
        try:
            parts = urlsplit(f"//{text}")
            return str(ip_address(parts.hostname or "")), parts.port or _DNS_PORT
        except ValueError:
            raise ValueError(
                f"`{text}` is not the address of a resolver, such as 192.0.2.53 or [2001:db8::53]:5353"
            ) from None


def country(text: str) -> str | None:
    """A country's code (ISO 3166-1 alpha-2); None without one.

    Raises:
        ValueError: something else.
    """
    code = text.strip().upper()
    if not code or code in COUNTRIES:
        return code or None
    hint = "; the United Kingdom's code is `GB`" if code == "UK" else ""
    raise ValueError(f"`{text}` is not a country code (ISO 3166-1 alpha-2), such as `DE`{hint}")


def dns_text(text: str) -> str:
    """What fits into one character-string of DNS (RFC 1035 §3.3).

    Raises:
        ValueError: it is longer.
    """
    if len(text.encode()) > _MAX_TEXT:
        raise ValueError(f"at most {_MAX_TEXT} bytes")
    return text


def dns_text_or_none(text: str) -> str | None:
    """The same, where nothing leaves it open (None), and `none` stands for an empty text."""
    return {"": None, _NONE: ""}.get(text, dns_text(text))


def text_or_none(text: str) -> str | None:
    """A text; None without one."""
    return text or None


def base_url(text: str) -> str | None:
    """A URL without a query, as browsers use it: https, or http; without a slash at its end. None without one.

    Raises:
        ValueError: something else.
    """
    if not text.strip():
        return None
    try:
        parts = urlsplit(text.strip())
        fits = parts.scheme in ("https", "http") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        fits = None
    if not fits or parts.query or parts.fragment or parts.username is not None or not text.isprintable():
        raise ValueError(f"`{text}` is not the beginning of an address, such as https://gtm.example.com")
    return text.strip().rstrip("/")


def site_url(text: str) -> str | None:
    """The same without a path: pages link to each other from the root of their host.

    Raises:
        ValueError: something else.
    """
    found = base_url(text)
    if found is not None and urlsplit(found).path:
        raise ValueError(
            f"`{text}` has a path, and the dashboard works at the root of a host name alone: give it a name of its own, "
            "such as https://gtm.example.com, and have the proxy pass on all paths as they are"
        )
    return found


def issuer(text: str) -> str | None:
    """An identity provider's issuer, to the letter: an https URL (http on this machine alone). None without one.

    Raises:
        ValueError: something else.
    """
    found = base_url(text)
    if found is None:
        return None
    parts = urlsplit(found)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError(f"`{text}` is not an https URL: what comes from there says who may do what")
    return text.strip()


def grants(given: list[str]) -> tuple[tuple[str, str, str], ...]:
    """Roles, and the claims and values that give them, as `ROLE=CLAIM:VALUE`.

    Raises:
        ValueError: something else, or a role that is not for people.
    """
    people = [one.value for one in (Role.VIEWER, Role.OPERATOR, Role.FENCE_ADMIN, Role.ADMIN)]
    found = []
    for part in _parts(given):
        role, equals, rest = part.partition("=")
        claim, colon, value = rest.partition(":")
        if not (equals and colon and claim.strip() and value.strip()):
            raise ValueError(f"`{part}` is not ROLE=CLAIM:VALUE, such as admin=group:gtm-admins")
        if role.strip() not in people:
            raise ValueError(f"`{role.strip()}` is no role for people: one of {', '.join(people)} is")
        found.append((role.strip(), claim.strip(), value.strip()))
    return tuple(found)


def name(text: str) -> str:
    """A name that must be given.

    Raises:
        ValueError: there is none.
    """
    if not text.strip():
        raise ValueError("is needed: give a name")
    return text.strip()


def texts(given: list[str]) -> tuple[str, ...]:
    """Texts, from options given several times, with commas, or both."""
    return _parts(given)


def log_level(text: str) -> str:
    """A level of the log, in small letters.

    Raises:
        ValueError: something else.
    """
    if text.lower() not in _LEVELS:
        raise ValueError(f"`{text}` is none of {', '.join(_LEVELS)}")
    return text.lower()
