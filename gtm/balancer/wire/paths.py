"""Which requests a balancer carries, by method and path: a list of what is allowed, by default the inference APIs of the servers that are known.

Model servers take commands on the port that they answer on: weights are changed, adapters loaded, caches dropped, engines put to sleep by whoever can send a request. What
is not on the list stays out.

**What is compared is what is sent.** A path is compared byte by byte, case and percent-encoding included (RFC 3986 §6.2.2.1), and goes on as it came. So that no server
can read another path in it, it is refused (400) where it has an encoded slash, backslash or NUL, an encoding that is none, an empty segment, or a segment that is a dot or
two once it is decoded or freed of its parameters (`..;x`).

Of a pattern `*` stands for one or more characters of one segment, and `/**` at its end for one or more segments. Whoever may GET may HEAD, and a browser may ask (OPTIONS, CORS) for
whatever is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gtm.balancer.wire.endpoints import ENDPOINTS, GROUPS, pattern_of
from gtm.balancer.wire.refusals import Refusal

_ENTRY = re.compile(r"([A-Z][A-Z0-9-]*(?:,[A-Z][A-Z0-9-]*)*) (/[!-~]*)")
_SAFE = re.compile(rb"(?:/[!-.0-Z^-~]++)++/?|/")
"""Segments none of which is empty; no backslash, which some servers take for a slash."""
_ENCODED = re.compile(rb"%(?![0-9A-Fa-f]{2})|%(?:2[Ff]|5[Cc]|00)")
_DOTS = re.compile(rb"/(?:\.|%2[Ee]){1,2}(?:[;/]|%3[Bb]|\Z)")


class Paths:
    """A list of what is carried.

    Args:
        entries: names of groups, and `METHOD /path` or `METHOD,METHOD /path` with `*` and `**`.

    Raises:
        ValueError: an entry is neither.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        exact: set[tuple[bytes, bytes]] = set()
        patterns: dict[bytes, list[bytes]] = {}
        for entry in entries:
            for method, path in _rows(entry):
                for one in _methods(method):
                    if "*" in path:
                        patterns.setdefault(one, []).append(pattern_of(path))
                    else:
                        exact.add((one, path.encode()))
        self._exact = frozenset(exact)
        self._patterns = {method: re.compile(b"|".join(found)) for method, found in patterns.items()}

    def lists(self, method: bytes, target: bytes) -> bool:
        """Whether a request is one of these, as its path stands."""
        path = target.partition(b"?")[0]
        pattern = self._patterns.get(method)
        return (method, path) in self._exact or (pattern is not None and bool(pattern.fullmatch(path)))

    def refusal(self, method: bytes, target: bytes) -> Refusal | None:
        """Why a request is not carried; None if it is."""
        path = target.partition(b"?")[0]
        if (method, path) in self._exact:
            return None
        wrong = ambiguous(path)
        if wrong is not None:
            return Refusal(400, "path_ambiguous", f"the path can be read in two ways: it has {wrong}")
        pattern = self._patterns.get(method)
        if pattern is not None and pattern.fullmatch(path):
            return None
        said = path[:200].decode("latin-1")
        return Refusal(
            404,
            "path_not_carried",
            f"`{method.decode('latin-1')[:20]} {said}` is not among the methods and paths that this balancer carries: see `paths` in its file",
        )


def _rows(entry: str) -> Sequence[tuple[str, str]]:
    if entry in GROUPS:
        return [(one.method, one.path) for one in ENDPOINTS if one.group == entry]
    found = _ENTRY.fullmatch(entry)
    if found is None:
        names = ", ".join(sorted(GROUPS))
        raise ValueError(
            f"`{entry[:200]}` is neither `METHOD /path`, as in `POST /v1/chat/completions`, nor one of {names}"
        )
    path = found[2]
    if "**" in path and not re.fullmatch(r"[^*]*(?:\*(?!\*)[^*]*)*/\*\*", path):
        raise ValueError(f"`{entry[:200]}`: `**` stands for the rest of a path, as in `GET /files/**`")
    wrong = ambiguous(path.encode().replace(b"*", b"x"))
    if wrong is not None:
        raise ValueError(f"`{entry[:200]}` would never be met: it has {wrong}, and such paths are refused")
    return [(method, path) for method in found[1].split(",")]


def _methods(method: str) -> tuple[bytes, ...]:
    return (b"GET", b"HEAD", b"OPTIONS") if method == "GET" else (method.encode(), b"OPTIONS")


def ambiguous(path: bytes) -> str | None:
    """What of a path servers may read in different ways; None: nothing."""
    if not _SAFE.fullmatch(path):
        return "an empty segment, a backslash, or a byte that no path has"
    if b"%" in path and _ENCODED.search(path):
        return "an encoded slash, backslash or NUL, or an encoding that is none"
    if _DOTS.search(path):
        return "a segment `.` or `..`"
    return None
