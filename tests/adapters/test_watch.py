"""Servers that are looked at again and again."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from gtm.adapters.servers import ServerType
from gtm.adapters.watch import PATIENCE, Fixed, ScrapeTarget, Watch

SECRET = ScrapeTarget(ServerType.VLLM, "http://me:secret@server.example:8000/metrics?key=secret")


def news(target: ScrapeTarget, answer: httpx.Response, clock: Iterator[float]) -> list[str]:
    """What is said of a server that answers so, by a clock that tells these times."""
    with httpx.Client(transport=httpx.MockTransport(lambda _: answer)) as client:
        watch = Watch([target], Fixed("eu-west"), client, lambda: next(clock))
        try:
            return watch.look()[1]
        finally:
            watch.close()


def test_no_password_is_said() -> None:
    """What is wrong with a server names it without what its URL holds for it alone."""
    (line,) = news(SECRET, httpx.Response(503), iter([0.0]))
    assert line.startswith("http://server.example:8000/metrics: answers with status 503")


def test_a_server_that_never_ends_holds_up_nobody() -> None:
    """An answer that comes byte by byte is given up, so that the other servers are reported."""
    clock = iter(range(1000))

    def drops() -> Iterator[bytes]:
        while True:
            yield b"#"

    (line,) = news(SECRET, httpx.Response(200, content=drops()), map(float, clock))
    assert f"has not answered in full after {PATIENCE:g} s" in line
