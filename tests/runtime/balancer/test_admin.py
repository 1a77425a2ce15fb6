"""A balancer's page tells this machine what it asks by its own names, and no page of a browser that leads its name here."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gtm.balancer.metrics import render_untold
from gtm.geoip.near import own_names
from gtm.runtime.balancer.admin import Admin
from gtm.settings import LOOPBACK


class Shown:
    """A process that is well."""

    async def unready(self) -> str:
        return ""

    async def metrics(self) -> bytes:
        return b"# nothing\n"

    async def state(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("path", ["/metrics", "/state"])
def test_the_host_is_one_of_this_machine(path: str) -> None:
    """Over loopback, on a real connection; from elsewhere, and of `/readyz`, no name is asked for."""

    async def main() -> None:
        admin = Admin(Shown(), (*LOOPBACK, ip_network("192.0.2.0/24")), names=own_names("127.0.0.1"))
        server = await asyncio.get_running_loop().create_server(admin.connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def status(path: str, host: str, method: str = "GET") -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{method} {path} HTTP/1.1\r\n{host}\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            return int(answer.split()[1])

        for host in ("Host: evil.example", "HOST: 127.0.0.1.evil.example:80"):
            assert await status(path, host) == 421
            assert await status("/readyz", host) == 200
            assert await status("/readyz?_=1695", host, "OPTIONS") == 200  # HAProxy's checks ask so
        for host in (f"Host: 127.0.0.1:{port}", "host: localhost", "Host: [::1]", "X-No: host"):
            assert await status(path, host) == 200
        code, _, _ = await admin.answer(path.encode(), "192.0.2.1", b"evil.example")
        assert code == 200
        server.close()

    asyncio.run(main())


def test_what_the_process_itself_counts_is_among_the_metrics() -> None:
    """Whatever processes carry requests."""

    async def main() -> None:
        admin = Admin(Shown(), LOOPBACK, counted=lambda: render_untold(3))
        _, _, text = await admin.answer(b"/metrics", "127.0.0.1", b"localhost")
        families = {one.name: one for one in text_string_to_metric_families(text.decode())}
        (sample,) = families["gtm_balancer_pushes_untold"].samples
        assert (sample.name, sample.value) == ("gtm_balancer_pushes_untold_total", 3)

    asyncio.run(main())
