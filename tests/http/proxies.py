"""The files of docs/proxies.md, with a test's ports in them, and what starts the proxies that they are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.docs.blocks import ROOT
from tests.handoff.test_nginx import _MAIN
from tests.tools import tool

PAGE = (ROOT / "docs/proxies.md").read_text()
_BEHIND = {
    "use_remote_address: true": "use_remote_address: false",
    "uri /v1/authorize": "trusted_proxies 127.0.0.0/8\n\t\turi /v1/authorize",
}
"""Clients of tests come from this machine and say their addresses, as behind another proxy: Envoy and Caddy believe that only if told so."""


def on_page(heading: str, language: str) -> str:
    """A file of the page, as it stands there but for whom to believe.

    Args:
        heading: the proxy, as the page's heading has it.
        language: of the block.
    """
    found = re.search(rf"```{language}\n(.*?)```", PAGE.partition(f"## You run {heading}")[2], re.DOTALL)
    assert found is not None
    text = found[1]
    for old, new in _BEHIND.items():
        text = text.replace(old, new)
    return text


def with_ports(text: str, ports: Mapping[int, int]) -> str:
    """A file with other ports in place of the page's."""
    return re.sub(r"(127\.0\.0\.1:|port_value: )(\d+)", lambda one: f"{one[1]}{ports[int(one[2])]}", text)


def command(name: str, directory: Path, filled: Callable[[str, str], str]) -> list[str]:
    """What starts a proxy with its file, which is written into the directory; `filled` gives a block of the page by heading and language."""
    program = tool(name)
    if name == "nginx":
        (directory / "conf").write_text(_MAIN.format(directory, filled("NGINX", "nginx")))
        return [program, "-c", str(directory / "conf")]
    if name == "envoy":
        (directory / "envoy.yaml").write_text(filled("Envoy", "yaml"))
        options = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
        return [program, "-c", str(directory / "envoy.yaml"), *options]
    if name == "haproxy":
        (directory / "gtm.lua").write_text(filled("HAProxy", "lua"))
        text = filled("HAProxy", "haproxy").replace("lua-load gtm.lua", f"lua-load {directory}/gtm.lua")
        (directory / "haproxy.cfg").write_text(text)
        return [program, "-db", "-f", str(directory / "haproxy.cfg")]
    (directory / "Caddyfile").write_text("{\n\tadmin off\n}\n" + filled("Caddy", "caddy"))
    return [program, "run", "--config", str(directory / "Caddyfile"), "--adapter", "caddyfile"]
