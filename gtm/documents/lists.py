"""Lists of regions as the files that other makes of proxies read: Envoy, HAProxy, NGINX, llm-d's router.

Each is a pure function from regions, as control lists them, to a file's text. A file with nothing in it would not always be read,
and the one before stay in force: so where no region is left each make has a text by which it refuses what comes.

Sources: Envoy's `envoy.service.discovery.v3.DiscoveryResponse` of `envoy.config.endpoint.v3.ClusterLoadAssignment`s, in a file that a
`path_config_source` names; NGINX's ngx_http_upstream_module; HAProxy 2.6's configuration manual, §5.2; llm-d-router at commit ebab6879
(August 2026, after its version 0.9), pkg/epp/framework/plugins/datalayer/discovery/file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gtm.core.model.addresses import host_port
from gtm.core.model.lists import ListedRegion
from gtm.core.model.regions import Endpoint

WEIGHTS = 256
"""What weights come to together: HAProxy takes none that is larger."""
_MOST_PRIORITIES = 128
"""Envoy's levels of priority."""
_TLS = " ssl verify required ca-file @system-ca sni str({0}) verifyhost {0}"


class ListFormat(StrEnum):
    """The proxy that a list is written for."""

    ENVOY_EDS = "envoy-eds"
    HAPROXY = "haproxy"
    LLM_D = "llm-d"
    NGINX = "nginx"


@dataclass(frozen=True, slots=True)
class ListedServer:
    """An endpoint of a list, as proxies have them.

    `name` is its region's, with a number behind a dot from the second on. `host` is that of its URL, `address` where it is reached: an
    address where one is known, else `host`. `weight` is 0 for those that stand in, in the order of `rank`, which counts regions.
    """

    name: str
    region: str
    host: str
    address: str
    port: int
    tls: bool
    weight: int
    rank: int
    standby: bool

    @property
    def numeric(self) -> bool:
        """Whether it is reached without asking DNS."""
        return _is_address(self.address)

    @property
    def authority(self) -> str:
        """Address and port as one text."""
        return host_port(self.address, self.port)


class ListText(NamedTuple):
    """A file's text, and the servers that the format has no way to say."""

    text: str
    left_out: tuple[str, ...] = ()


class _Format(NamedTuple):
    suffix: str
    write: Callable[[str, Sequence[ListedServer]], ListText]


def servers(regions: Sequence[ListedRegion]) -> Iterator[ListedServer]:
    """The servers of a list. A region's share is spread evenly over its endpoints, and an endpoint's over its addresses."""
    for rank, region in enumerate(regions, 1):
        count = 0
        for endpoint in region.endpoints:
            url = urlsplit(endpoint.url)
            host = url.hostname or ""
            addresses = _addresses(endpoint, host)
            for address in addresses:
                count += 1
                part = region.share / len(region.endpoints) / len(addresses)
                yield ListedServer(
                    region.region if count == 1 else f"{region.region}.{count}",
                    region.region,
                    host,
                    address,
                    url.port or (443 if url.scheme == "https" else 80),
                    url.scheme == "https",
                    max(1, round(part * WEIGHTS)) if region.share > 0 else 0,
                    rank,
                    region.standby,
                )


def _addresses(endpoint: Endpoint, host: str) -> tuple[str, ...]:
    """Where an endpoint is reached: by the URL where that names an address, else by IPv4, by IPv6, by its name."""
    return (host,) if _is_address(host) else endpoint.ipv4 or endpoint.ipv6 or (host,)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def text_of(form: ListFormat, name: str, regions: Sequence[ListedRegion]) -> ListText:
    """A list as a file.

    Args:
        form: whom it is for.
        name: of the list: a service, or a service and a data class with a dot between them.
        regions: in order of preference.
    """
    return _FORMATS[form].write(name, tuple(servers(regions)))


def file_name(form: ListFormat, name: str) -> str:
    """What a list's file is called; Envoy reads it by what its name ends in."""
    return name + _FORMATS[form].suffix


def _envoy(name: str, found: Sequence[ListedServer]) -> ListText:
    """Those of weight have priority 0; each region that stands in has a priority of its own, in order of preference."""
    levels: dict[int, list[ListedServer]] = {}
    for one in filter(lambda one: one.numeric, found):
        levels.setdefault(0 if one.weight else one.rank, []).append(one)
    endpoints = [
        {
            "priority": min(place, _MOST_PRIORITIES - 1),
            "lb_endpoints": [
                {
                    "endpoint": {
                        "hostname": one.host,
                        "address": {"socket_address": {"address": one.address, "port_value": one.port}},
                    },
                    "load_balancing_weight": one.weight or 1,
                }
                for one in level
            ],
        }
        for place, (_, level) in enumerate(sorted(levels.items()))
    ]
    kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    resources = [{"@type": kind, "cluster_name": name, "endpoints": endpoints}]
    text = json.dumps({"resources": resources}, indent=2) + "\n"
    return ListText(text, tuple(one.host for one in found if not one.numeric))


def _nginx(name: str, found: Sequence[ListedServer]) -> ListText:
    lines = [
        f"    server {one.authority}{f' weight={one.weight}' if one.weight else ' backup'};  # {one.name}"
        for one in found
    ]
    # Without any server NGINX would refuse the file, and go on with the one before.
    lines = lines or ["    server 127.0.0.1:1 down;  # no region may serve these requests now"]
    return ListText("\n".join([f"upstream {name} {{", *lines, "}", ""]))


def _haproxy(name: str, found: Sequence[ListedServer]) -> ListText:
    lines = [
        f"    server {one.name} {one.authority}{f' weight {one.weight}' if one.weight else ' backup'}"
        f"{'' if one.numeric else ' init-addr libc,none'}{_TLS.format(one.host) if one.tls else ''}"
        for one in found
    ]
    return ListText("\n".join([f"backend {name}", *lines, ""]))


def _llm_d(_: str, found: Sequence[ListedServer]) -> ListText:
    """By the names of URLs, which certificates are for; llm-d weighs by what it measures, so those that only stand in are left away."""
    entries: dict[tuple[str, int], dict[str, Any]] = {}
    for one in found:
        if not one.standby:  # an endpoint of several addresses is one cluster
            entry = {
                "name": one.name,
                "address": one.host,
                "port": str(one.port),
                "labels": {"region": one.region},
            }
            entries.setdefault((one.host, one.port), entry)
    return ListText(json.dumps({"endpoints": list(entries.values())}, indent=2) + "\n")


_FORMATS: Mapping[ListFormat, _Format] = {
    ListFormat.ENVOY_EDS: _Format(".json", _envoy),
    ListFormat.HAPROXY: _Format(".cfg", _haproxy),
    ListFormat.LLM_D: _Format(".json", _llm_d),
    ListFormat.NGINX: _Format(".conf", _nginx),
}
