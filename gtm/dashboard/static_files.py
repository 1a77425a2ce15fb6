"""Scripts, styles and maps: read once, compressed once, named by what they hold, so that browsers keep them for good."""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from gtm.dashboard.security import HEADERS, PERSONAL

HOME = Path(__file__).parent / "static"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> dict[str, tuple[str, bytes, bytes]]:
    """By name: its type, its bytes, and these compressed."""
    found = {}
    for path in sorted(HOME.rglob("*")):
        if path.suffix in _KINDS:
            data = path.read_bytes()
            found[path.relative_to(HOME).as_posix()] = (
                _KINDS[path.suffix],
                data,
                gzip.compress(data, 9, mtime=0),
            )
    return found


@cache
def version() -> str:
    """What all files together are called: another, where any of them has changed."""
    whole = sha256()
    for name, (_, data, _) in _files().items():
        whole.update(b"%b\0%d\0%b" % (name.encode(), len(data), data))
    return whole.hexdigest()[:16]


def url(name: str) -> str:
    """Where a file is.

    Raises:
        KeyError: there is none of this name.
    """
    _ = _files()[name]
    return f"/static/{version()}/{name}"


def _takes_gzip(accepted: str) -> bool:
    """Whether a browser takes that (RFC 9110 §12.5.3); weight 0: it does not.

    >>> [_takes_gzip(text) for text in ("gzip, br", "br;q=1, GZIP ; q=0.5", "gzip;q=0", "identity;q=1, gzip; q=0.000", "")]
    [True, True, False, False, False]
    """
    for one in accepted.lower().split(","):
        coding, *weights = (part.strip() for part in one.split(";"))
        if coding == "gzip":
            return not any(weight.startswith("q=") and not weight[2:].strip("0.") for weight in weights)
    return False


async def static(request: Request) -> Response:
    """One file, by its name and the version of all."""
    found = _files().get(request.path_params["name"])
    if found is None:
        return Response("there is no such file", 404, PERSONAL, "text/plain")
    kind, data, compressed = found
    fresh = request.path_params["version"] == version()
    headers = {
        **HEADERS,
        "Cache-Control": "public, max-age=31536000, immutable" if fresh else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(compressed, 200, {**headers, "Content-Encoding": "gzip"}, kind)
    return Response(data, 200, headers, kind)
