"""Which proxy leads to a server, as the environment says: for the one server that a session speaks with.

`httpx` reads the environment for all servers at once, and fails for the sake of others: an IPv6 network in `no_proxy`, as container
runtimes put there, ends it.

Sources: libcurl, `CURLOPT_NOPROXY` (names, addresses and networks; `*`); Python, `urllib.request.getproxies`.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed has it not

import httpx

_SCHEMES = frozenset({"http", "https"})
"""Of proxies that are spoken with. Others (SOCKS) need what gtm does not bring along."""


def proxy_for(url: str) -> str | None:
    """The proxy's URL; None: none is between. Variables in small letters win, those in capitals count, too.

    Args:
        url: the server's, http or https.

    Raises:
        ValueError: what the environment names is no proxy; the message names the variable, and does not repeat what is in it, which
            may have a password.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies_environment()
    name = parts.scheme if proxies.get(parts.scheme, "").strip() else "all"
    found = proxies.get(name, "").strip()
    if not found or _own(host) or _excepted(host, parts.port, proxies.get("no", "")):
        return None
    whole = found if "://" in found else f"http://{found}"
    with suppress(ValueError, httpx.InvalidURL):
        proxy = httpx.Proxy(whole).url
        if proxy.scheme in _SCHEMES and proxy.host and 0 < (proxy.port or 80) < 65536:
            return whole
    raise ValueError(f"{name}_proxy is no URL of an HTTP proxy such as http://proxy.example:3128")


def _own(host: str) -> bool:
    """Whether a host is this machine's own loopback, to which no proxy leads."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _excepted(host: str, port: int | None, exceptions: str) -> bool:
    """Whether a server is one of those that are asked without a proxy."""
    if proxy_bypass_environment(host if port is None else f"{host}:{port}", {"no": exceptions}):
        return True
    with suppress(ValueError):
        address = ip_address(host)
        for one in exceptions.split(","):
            with suppress(ValueError):  # a name
                if address in ip_network(one.strip().replace("[", "").replace("]", ""), strict=False):
                    return True
    return False
