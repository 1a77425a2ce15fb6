"""Request lines that no honest client sends, and some that it does: each is answered or refused, and none is a bug's (RFC 9112 §3)."""

from __future__ import annotations

import socket

TARGETS = (
    b"*",
    b"/",
    b"//",
    b"///healthz",
    b"/healthz/",
    b"/healthz?",
    b"/healthz??a=b&&=&",
    b"/%00",
    b"/healthz%00",
    b"/%ff",
    b"/%fe%ff?%ff=%00",
    b"/%",
    b"/%zz",
    b"/%2e%2e/%2e%2e/etc/passwd",
    b"/../healthz",
    b"/./healthz",
    b"/v1/tenants/%00",
    b"/v1/tenants/%ff",
    b"/v1/tenants/..%2f..%2f",
    b"/v1/audit?cursor=%00",
    b"/v1/audit?limit=99999999999999999999",
    b"/v1/audit?since=%ff",
    b"/v1/route?service=%00&client_ip=%ff",
    b"/static/%00/%ff",
    b"/static/x/..%2f..%2fx",
    b"/services/%00",
    b"/regions/%ff",
    b"/sign-in?next=%00%ff",
    b"/?x=" + b"a" * 3000,
    b"/" + b"a" * 20_000,
    b"/" + b"a/" * 5_000,
    b"http://127.0.0.1/healthz",
    b"HTTP://EXAMPLE.TEST:99999/v1/status",
    b"http://",
    b"http://[::1",
    b"https://u:p@h/readyz",
    b"gopher://x/",
    b"127.0.0.1:80",
    b"example.test:443",
    b"healthz",
    b"",
    b"\xff\xfe",
    b"/\xc3\xa4",
    b"/a b",
    b"/a\tb",
    b"/a#b",
    b"/\x00",
)
METHODS = (
    b"GET",
    b"HEAD",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PRI",
    b"POST",
    b"get",
    b"Get",
    b"",
    b"M-SEARCH",
    b"\xff",
    b"A" * 300,
)
VERSIONS = (
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/9.9",
    b"HTTP/1.1.1",
    b"http/1.1",
    b"",
    b"XTTP/1.1",
)
HOSTS = (
    b"Host: 127.0.0.1\r\n",
    b"",
    b"Host: \xff\r\n",
    b"Host: a\r\nHost: b\r\n",
    b"Host:\r\n",
    b"Host: [::1\r\n",
    b"Host: a:b:c\r\n",
)


def lines() -> list[bytes]:
    """Heads: each target, method, version and host at least once, with what is usual for the rest."""
    made = [
        b"%b %b HTTP/1.1\r\n%b" % (method, target, HOSTS[0]) for target in TARGETS for method in METHODS[:2]
    ]
    made += [
        b"%b %b HTTP/1.1\r\n%b" % (method, target, HOSTS[0])
        for method in METHODS
        for target in (b"/healthz", b"*", b"a:1")
    ]
    made += [b"GET /readyz %b\r\n%b" % (version, host) for version in VERSIONS for host in HOSTS]
    made += [
        b"GET %b HTTP/1.1\r\n%b" % (target, host)
        for target in (b"/", b"/sign-in", b"/v1/status")
        for host in HOSTS
    ]
    return [one + b"Connection: close\r\n\r\n" for one in made]


def answer(address: tuple[str, int], head: bytes) -> bytes:
    """All that comes in answer to a head, until the other side closes; nothing where it closes at once."""
    with socket.create_connection(address, timeout=20) as connection:
        found = b""
        try:
            connection.sendall(head)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                found += part
        except ConnectionError:
            pass
        return found


def wrong(address: tuple[str, int]) -> dict[bytes, bytes]:
    """Heads whose answers are a bug's, and how these begin: 5xx that says so, a body after HEAD, or no status line."""
    found = {}
    for head in lines():
        said = answer(address, head)
        status = said.split(b" ")[1:2]
        body = said.partition(b"\r\n\r\n")[2]
        if (
            (said and not said.startswith(b"HTTP/1."))
            or status in ([b"500"], [b"502"], [b"504"])
            or (head.startswith(b"HEAD ") and status == [b"200"] and body)
        ):
            found[head] = said[:300]
    return found
