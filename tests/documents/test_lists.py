"""Lists as the files of other proxies, read back as these read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.lists import ListedRegion
from gtm.core.model.regions import Endpoint
from gtm.documents.lists import WEIGHTS, ListFormat, file_name, servers, text_of
from tests.core.strategies import quick

Read = dict[tuple[str, int], int]
"""Address and port → weight; 0: it stands in."""


@st.composite
def listings(draw: st.DrawFn) -> tuple[ListedRegion, ...]:
    """Some regions with endpoints by name and by address, of which some have a share."""
    count = draw(st.integers(0, 5))
    parts = [draw(st.sampled_from([0, 1, 1, 3, 1000])) for _ in range(count)]
    total = sum(parts) or 1
    found = []
    for number, part in enumerate(parts):
        endpoints = []
        for place in range(draw(st.integers(1, 2))):
            host = draw(
                st.sampled_from(
                    [
                        f"r{number}-{place}.test",
                        f"198.51.100.{number * 8 + place}",
                        f"[2001:db8:1::{number + 1}:{place + 1}]",
                    ]
                )
            )
            scheme, port = draw(st.sampled_from(["http", "https"])), draw(st.sampled_from(["", ":8443"]))
            ipv4 = tuple(f"192.0.2.{number * 8 + place * 2 + at}" for at in range(draw(st.integers(0, 2))))
            ipv6 = (f"2001:db8::{number}:{place}",) if draw(st.booleans()) else ()
            endpoints.append(Endpoint(f"{scheme}://{host}{port}", ipv4, ipv6))
        found.append(
            ListedRegion(f"r-{number}", part / total, part == 0 and draw(st.booleans()), tuple(endpoints))
        )
    return tuple(found)


def _expected(regions: tuple[ListedRegion, ...]) -> Iterator[tuple[str, int, float]]:
    """Where each endpoint is reached, and its part, said once more."""
    for region in regions:
        for endpoint in region.endpoints:
            url = urlsplit(endpoint.url)
            assert url.hostname is not None
            port = url.port or {"http": 80, "https": 443}[url.scheme]
            try:
                addresses: tuple[str, ...] = (str(ip_address(url.hostname)),)
            except ValueError:
                addresses = endpoint.ipv4 or endpoint.ipv6 or (url.hostname,)
            for address in addresses:
                yield address, port, region.share / len(region.endpoints) / len(addresses)


def _split(authority: str) -> tuple[str, int]:
    address, _, port = authority.rpartition(":")
    return address.strip("[]"), int(port)


def _read(form: ListFormat, text: str) -> Read:
    """What a file says."""
    if form is ListFormat.ENVOY_EDS:
        (assignment,) = json.loads(text)["resources"]
        assert assignment["cluster_name"] == "chat.health"
        assert [one["priority"] for one in assignment["endpoints"]] == list(
            range(len(assignment["endpoints"]))
        )
        return {
            (at["address"], at["port_value"]): one["load_balancing_weight"]
            if weighs(group, assignment)
            else 0
            for group in assignment["endpoints"]
            for one in group["lb_endpoints"]
            for at in [one["endpoint"]["address"]["socket_address"]]
        }
    head, *lines = text.splitlines()
    if form is ListFormat.NGINX:
        assert (head, lines.pop()) == ("upstream chat.health {", "}")
        pattern = r"    server (\S+)(?: weight=(\d+)| (backup)| (down));  # .+"
    else:
        assert head == "backend chat.health"
        pattern = r"    server \S+ (\S+)(?: weight (\d+)| (backup)|(!))(?: init-addr libc,none)?(?: ssl verify required .+)?"
    matched = [re.fullmatch(pattern, line) for line in lines]
    return {_split(one[1]): int(one[2] or 0) for one in matched if one is not None and not one[4]}


def weighs(group: dict[str, object], assignment: dict[str, object]) -> bool:
    """Whether a group of Envoy's is the first: in tests some region has a share wherever there is one."""
    return group["priority"] == 0


@quick(200)
@given(listings(), st.sampled_from([ListFormat.ENVOY_EDS, ListFormat.HAPROXY, ListFormat.NGINX]))
def test_a_file_names_what_is_listed_and_nothing_else(
    regions: tuple[ListedRegion, ...], form: ListFormat
) -> None:
    """Each endpoint at its addresses with its weight; Envoy takes no names, and says which it leaves out."""
    text, left_out = text_of(form, "chat.health", regions)
    wanted = {(address, port): part for address, port, part in _expected(regions)}
    if form is ListFormat.ENVOY_EDS:
        assert set(left_out) == {address for address, _ in wanted if address.endswith(".test")}
        wanted = {key: part for key, part in wanted.items() if not key[0].endswith(".test")}
    else:
        assert not left_out
    found = _read(form, text)
    assert found.keys() == wanted.keys()
    if form is not ListFormat.ENVOY_EDS or any(wanted.values()):
        for key, part in wanted.items():
            assert (found[key] > 0) == (part > 0)
            assert found[key] <= WEIGHTS
            assert abs(found[key] - part * WEIGHTS) <= 1


@quick(100)
@given(listings())
def test_llm_d_is_told_clusters_by_name(regions: tuple[ListedRegion, ...]) -> None:
    """As its `multicluster-file-discovery` takes them: names that differ, a host or an address, a port as text."""
    text, left_out = text_of(ListFormat.LLM_D, "chat", regions)
    entries = json.loads(text)["endpoints"]
    assert not left_out
    assert len({one["name"] for one in entries}) == len(entries)
    for one in entries:
        assert 1 <= int(one["port"]) <= 65535
        assert one.keys() == {"name", "address", "port", "labels"}
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", one["address"]) or ip_address(one["address"])
    urls = {
        (
            urlsplit(end.url).hostname,
            str(urlsplit(end.url).port or {"http": 80, "https": 443}[urlsplit(end.url).scheme]),
        )
        for region in regions
        if not region.standby
        for end in region.endpoints
    }
    assert {(one["address"], one["port"]) for one in entries} == urls


@given(listings())
@quick(50)
def test_names_of_servers_differ(regions: tuple[ListedRegion, ...]) -> None:
    """HAProxy refuses two of one name."""
    names = [one.name for one in servers(regions)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", ListFormat)
def test_without_a_region_a_file_says_so(form: ListFormat) -> None:
    """It is a whole document of its kind all the same."""
    text, left_out = text_of(form, "chat", ())
    assert text.strip()
    assert not left_out
    assert "server" not in text.replace("server 127.0.0.1:1 down;", "")


def test_file_names() -> None:
    """Envoy reads a file by what its name ends in."""
    assert [file_name(form, "chat.health") for form in ListFormat] == [
        *("chat.health.json", "chat.health.cfg", "chat.health.json", "chat.health.conf")
    ]
