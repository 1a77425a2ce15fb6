"""Asking what this machine's processes say of themselves: a GET without the 100 ms that an HTTP client takes to load."""

from __future__ import annotations

import asyncio

_PATIENCE = 2.0
_MOST = 1 << 20


async def asked(host: str, port: int, path: str) -> bytes | None:
    """The body of a 200; None for anything else, or for nothing within 2 s."""
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                head, _, body = (await reader.read(_MOST)).partition(b"\r\n\r\n")
                while not reader.at_eof():
                    body += await reader.read(_MOST)
            finally:
                writer.close()
    except OSError:  # TimeoutError too
        return None
    return body if head.split(b" ", 2)[1:2] == [b"200"] else None
