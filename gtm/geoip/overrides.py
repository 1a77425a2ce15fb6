"""What the operator says of networks, over what a database says."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

import yaml

from gtm.geoip.centres import CONTINENTS
from gtm.geoip.records import GeoIPError, Place, coordinates, country_code
from gtm.yaml_nodes import YamlError, read_nodes

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Override:
    """Where a network is. Replaces everything that a database says of it, also with what is not given."""

    network: Network
    place: Place


class OverrideIndex:
    """Overrides of one address family (32 or 128 bits), no two of the same network; the most specific one wins."""

    def __init__(self, overrides: Iterable[Override], bits: int) -> None:
        ordered = sorted(
            (int(item.network.network_address), item.network.prefixlen, item.place)
            for item in overrides
            if item.network.max_prefixlen == bits
        )
        self._bits = bits
        self._order = [(start, length) for start, length, _ in ordered]
        self._places = {(start, length): place for start, length, place in ordered}
        self._lengths = sorted({length for _, length in self._order}, reverse=True)

    def __len__(self) -> int:
        return len(self._order)

    def match(self, address: int) -> tuple[Place, int] | None:
        """The most specific override around an address, and its prefix length."""
        for length in self._lengths:
            shift = self._bits - length
            place = self._places.get((address >> shift << shift, length))
            if place is not None:
                return place, length
        return None

    def narrowed(self, address: int, prefix_length: int) -> int:
        """The length of the widest prefix around an address, inside the given one, with no override inside it.

        The given prefix must be that of the override that `match` finds or, where there is none, any. The override
        nearest to the address, on either side, shares the longest prefix with it: these two decide.
        """
        if not self._order:
            return prefix_length
        shift = self._bits - prefix_length
        base = address >> shift << shift
        after = bisect_right(self._order, (address, self._bits))
        length = prefix_length
        if after and self._order[after - 1] > (base, prefix_length):
            length = max(length, self._differs_at(address, self._order[after - 1][0]))
        if after < len(self._order) and self._order[after][0] >> shift << shift == base:
            length = max(length, self._differs_at(address, self._order[after][0]))
        return length

    def _differs_at(self, address: int, other: int) -> int:
        """The length at which the prefixes of two addresses first differ."""
        return self._bits - (address ^ other).bit_length() + 1


# --- The file of overrides (`GTM_GEOIP_OVERRIDES`), in YAML or JSON. Its format: docs/geoip.md.
#
# It is read from YAML's node graph, within `gtm.yaml_nodes`' bounds: every scalar stays the text that was written (`country: NO` is Norway, not
# false), and every problem knows its line.


_FIELDS = ("network", "country", "subdivision", "lat", "lon", "asn")
_NUMBER = re.compile(r"[+-]?[0-9]{1,3}(\.[0-9]{1,20})?", re.ASCII)
_INTEGER = re.compile(r"[0-9]{1,10}", re.ASCII)
_TEXT_LIMIT = 64
_MAPPED = ip_network("::ffff:0:0/96")


class _Problems:
    """What is wrong, in the order of the file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, node: yaml.Node, message: str) -> None:
        self.lines.append(f"line {node.start_mark.line + 1}: {message}")


def load_overrides(path: Path) -> tuple[Override, ...]:
    """Read a file of overrides.

    Raises:
        GeoIPError: it cannot be read, or something in it is wrong; the message lists every problem with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GeoIPError(f"cannot read the overrides `{path}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GeoIPError(f"the overrides `{path}` are not UTF-8 text") from None
    try:
        documents = read_nodes(text, lambda _, node: node, keys_once=False)
    except YamlError as error:
        raise GeoIPError(f"the overrides `{path}` are not YAML that is read: {error}") from None
    if len(documents) > 1:
        raise GeoIPError(
            f"the overrides `{path}` are more than one document: write them in one, without `---`"
        )
    problems = _Problems()
    overrides = _read_root(documents[0] if documents else None, problems)
    if problems.lines:
        raise GeoIPError("\n  ".join([f"the overrides `{path}` are wrong:", *problems.lines]))
    return overrides


def _read_root(root: yaml.Node | None, problems: _Problems) -> tuple[Override, ...]:
    if root is None:
        return ()
    if not isinstance(root, yaml.MappingNode):
        problems.add(root, "expected `overrides:` with a list under it")
        return ()
    members = _members(root, ("overrides",), problems)
    items = members.get("overrides")
    if items is None:
        problems.add(root, "`overrides` is missing")
        return ()
    if not isinstance(items, yaml.SequenceNode):
        problems.add(items, "`overrides` must be a list")
        return ()
    overrides: list[Override] = []
    lines: dict[Network, int] = {}
    for item in items.value:
        override = _read_item(item, problems)
        if override is None:
            continue
        line = item.start_mark.line + 1
        first = lines.setdefault(override.network, line)
        if first != line:
            problems.add(item, f"`{override.network}` is given before, on line {first}")
        overrides.append(override)
    return tuple(overrides)


def _members(node: yaml.MappingNode, allowed: tuple[str, ...], problems: _Problems) -> dict[str, yaml.Node]:
    members: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name not in allowed:
            shown = "a list or mapping" if name is None else f"`{_short(name)}`"
            problems.add(key, f"{shown} is no field here; known: {', '.join(allowed)}")
        elif name in members:
            problems.add(key, f"`{name}` is given twice")
        else:
            members[name] = value
    return members


def _read_item(item: yaml.Node, problems: _Problems) -> Override | None:
    """One override; None if it is wrong, which is then among the problems."""
    if not isinstance(item, yaml.MappingNode):
        problems.add(item, "expected an override with `network` and `country`")
        return None
    before = len(problems.lines)
    members = _members(item, _FIELDS, problems)
    texts: dict[str, str] = {}
    for name, node in members.items():
        if isinstance(node, yaml.ScalarNode):
            texts[name] = node.value
        else:
            problems.add(node, f"`{name}` must be a single value")
    for name in ("network", "country"):
        if name not in members:
            problems.add(item, f"`{name}` is missing")

    network = _network(members, texts, problems)
    country = texts.get("country")
    if country is not None and country_code(country) is None:
        problems.add(
            members["country"],
            f"`{_short(country)}` is not a country code (ISO 3166-1 alpha-2, in capitals)",
        )
    lat, lon = _coordinates(members, texts, problems, item)
    subdivision = texts.get("subdivision")
    if subdivision is not None and not 0 < len(subdivision) <= _TEXT_LIMIT:
        problems.add(members["subdivision"], f"`subdivision` must have 1 to {_TEXT_LIMIT} characters")
    asn = _asn(members, texts, problems)
    if network is None or country is None or len(problems.lines) > before:
        return None
    return Override(network, Place(country, subdivision, CONTINENTS.get(country), lat, lon, asn))


def _network(members: dict[str, yaml.Node], texts: dict[str, str], problems: _Problems) -> Network | None:
    text = texts.get("network")
    if text is None:
        return None
    try:
        network = ip_network(text)
    except ValueError:
        hint = ""
        with suppress(ValueError):
            hint = f"; did you mean `{ip_network(text, strict=False)}`?"
        problems.add(members["network"], f"`{_short(text)}` is not a network in CIDR notation{hint}")
        return None
    if isinstance(network, IPv6Network):
        if network.network_address.scope_id is not None:
            problems.add(members["network"], f"`{_short(text)}` has a scope id")
            return None
        if network.subnet_of(_MAPPED):  # type: ignore[arg-type]
            packed = network.network_address.packed[12:]
            return ip_network((packed, network.prefixlen - 96))
    return network


def _coordinates(
    members: dict[str, yaml.Node], texts: dict[str, str], problems: _Problems, item: yaml.Node
) -> tuple[float, float] | tuple[None, None]:
    if ("lat" in members) != ("lon" in members):
        problems.add(item, "`lat` and `lon` go together")
    lat, lon = texts.get("lat"), texts.get("lon")
    if lat is None or lon is None:
        return None, None
    right = True
    for name, text, limit in (("lat", lat, 90), ("lon", lon, 180)):
        if not _NUMBER.fullmatch(text) or abs(float(text)) > limit:
            problems.add(
                members[name], f"`{name}` must be degrees from -{limit} to {limit}, not `{_short(text)}`"
            )
            right = False
    return coordinates(float(lat), float(lon)) if right else (None, None)


def _asn(members: dict[str, yaml.Node], texts: dict[str, str], problems: _Problems) -> int | None:
    text = texts.get("asn")
    if text is None:
        return None
    if not _INTEGER.fullmatch(text) or not 0 < int(text) < 2**32:
        problems.add(members["asn"], f"`asn` must be a number from 1 to 4294967295, not `{_short(text)}`")
        return None
    return int(text)


def _short(text: str) -> str:
    shown = text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…"
    return shown.encode("unicode_escape").decode("ascii")
