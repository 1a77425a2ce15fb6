"""Where probes connect to, and where not."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from gtm.core.model.regions import Probe, ProbeType
from gtm.destinations import refusal
from gtm.prober.checks import Checker
from gtm.settings import LOOPBACK
from tests.prober.servers import http, serve

pytestmark = pytest.mark.anyio
PROBE = Probe(timeout=5.0)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("fe80::1", "link-local"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "multicast"),
        ("ff02::1", "multicast"),
        ("fd00:ec2::254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("169.254.170.2", "link-local"),
        ("fd00:ec2::23", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("::7f00:1", "loopback"),  # IPv4-compatible
        ("::a9fe:a9fe", "link-local"),
        ("::ffff:0:a9fe:a9fe", "link-local"),  # IPv4-translated
        ("64:ff9b:1::a9fe:a9fe", "link-local"),  # NAT64 of one's own, prefixes of 96, 64, 56 and 48 bits
        ("64:ff9b:1::a9:fea9:fe00:0", "link-local"),
        ("64:ff9b:1:a9:fe:a9fe::", "link-local"),
        ("64:ff9b:1:a9fe:a9:fe00::", "link-local"),
        ("64:ff9b:1::6464:64c8", "metadata"),
        ("2002:a9fe:a9fe::1", "link-local"),  # 6to4
        ("2002:7f00:1::", "loopback"),
        ("2001:0:c000:201::5601:5601", "link-local"),  # Teredo, the client: its bits are turned
        ("2001:0:a9fe:a9fe::3fff:fdfe", "link-local"),  # and the server
        ("2001:db8::5efe:a9fe:a9fe", "link-local"),  # ISATAP
        ("fd00::200:5efe:a83f:8110", "metadata"),
        ("64:ff9b:1::c633:6401", None),
        ("64:ff9b:1:c633:64:100::", None),
        ("2002:c633:6401::1", None),
        ("2002:a00:1::1", None),
        ("64:ff9b::a00:1", None),
        ("10.0.0.1", None),
        ("172.16.0.1", None),
        ("192.168.1.1", None),
        ("fd00::1", None),
        ("100.64.0.1", None),
        ("8.8.8.8", None),
        ("2001:db8::1", None),
    ],
)
async def test_addresses_that_are_refused(address: str, kind: str | None) -> None:
    """This machine, this link, everybody, nobody, and clouds' own services; private networks are not."""
    found = refusal(ip_address(address))
    assert (found is None) == (kind is None), found
    assert kind is None or kind in str(found)
    whole = ip_network(address)
    assert refusal(ip_address(address), (whole,)) is None


async def test_what_is_allowed_is_the_address_that_is_led_to() -> None:
    """A network that is allowed is so in whatever form its addresses come."""
    assert refusal(ip_address("::ffff:127.0.0.1"), LOOPBACK) is None
    assert refusal(ip_address("::ffff:169.254.1.1"), LOOPBACK) is not None


@pytest.mark.parametrize("probe", [PROBE, replace(PROBE, type=ProbeType.TCP)], ids=["http", "tcp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "rebinding.test"])
async def test_nothing_connects_to_this_machine_unless_allowed(
    host: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by address or by name; a name that leads elsewhere when it is asked again is not asked again."""
    asked: list[str] = []
    real = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(name: str, port: int, **more: Any) -> Any:
        asked.append(name)
        if name == "rebinding.test":
            name = "127.0.0.1" if asked.count(name) == 1 else "192.0.2.1"
        return await real(name, port, **more)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    async with serve(http(200, b"ok")) as server:
        url = server.url.replace("127.0.0.1", host)
        for allowed, passes in (((), False), (LOOPBACK, True)):
            asked.clear()
            checker = Checker(lambda: 1.0, allowed)
            result = await checker.check(url, probe)
            await checker.close()
            assert result is not None
            assert result.ok is passes, result.detail
            assert asked.count(host) == 1
            if not passes:
                assert "not probed: " in result.detail
                assert "GTM_PROBE_ALLOW=" in result.detail
                assert server.most_open == 0


async def test_the_next_address_is_tried() -> None:
    """A name whose first address refuses is checked at the second, under its own name."""
    async with serve(http(200, b"ok")) as server:
        checker = Checker(lambda: 1.0, LOOPBACK)

        async def getaddrinfo(_name: str, port: int, **_more: Any) -> Any:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.77.0.1", port)), (*kind, ("127.0.0.1", port))]

        loop = asyncio.get_running_loop()
        before, loop.getaddrinfo = loop.getaddrinfo, getaddrinfo  # type: ignore[method-assign]
        try:
            for probe in (PROBE, replace(PROBE, type=ProbeType.TCP)):
                result = await checker.check(f"http://two.test:{server.port}", probe)
                assert result is not None
                assert result.ok
        finally:
            loop.getaddrinfo = before  # type: ignore[method-assign]
            await checker.close()
    assert f"host: two.test:{server.port}\r\n".encode() in server.heads[0].lower()


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        (b'{"token": "hunter2"}', {"json_field": "token", "json_value": "x"}),
        (b"hunter2", {"body_regex": "^ok$"}),
        (b"hunter2", {"json_field": "token", "json_value": "x"}),
    ],
)
async def test_what_an_endpoint_says_is_not_repeated(body: bytes, changes: dict[str, Any]) -> None:
    """Who reads of health reads nothing that only edges can."""
    async with serve(http(200, body)) as server:
        checker = Checker(lambda: 1.0, LOOPBACK)
        result = await checker.check(server.url, replace(PROBE, **changes))
        await checker.close()
    assert result is not None
    assert not result.ok
    assert "hunter2" not in result.detail


async def test_what_is_no_http_is_not_repeated() -> None:
    """Neither is the greeting of another protocol."""

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: bytes) -> None:
        writer.write(b"hunter2 ESMTP\r\n")

    async with serve(greet) as server:
        checker = Checker(lambda: 1.0, LOOPBACK)
        result = await checker.check(server.url, PROBE)
        await checker.close()
    assert result.detail == "answer is not valid http"
