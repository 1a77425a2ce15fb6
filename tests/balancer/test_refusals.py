"""The form in which a balancer refuses, by the path and what the client takes."""

from __future__ import annotations

import json

import pytest

from gtm.balancer.wire.refusals import Refusal
from tests.balancer.world import run, world
from tests.core.model.accepts import ACCEPTS


@pytest.mark.parametrize(("path", "accept", "media", "anthropics"), ACCEPTS)
def test_a_refusal_has_the_form_that_its_client_takes(
    path: str, accept: str, media: str, *, anthropics: bool
) -> None:
    """As at an edge (tests/http/test_redirect.py). `Accept` may be there more than once."""

    async def main() -> None:
        async with world("http://127.0.0.1:9") as w:
            w.gate.refusal = Refusal(451, "refused_residency", "no")
            for lines in ([accept], accept.split(",")[:90]):
                said = "".join(f"Accept: {one}\r\n" for one in lines if accept)
                answer = await w.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n{said}\r\n".encode())
                document = json.loads(answer.body)
                assert answer.get("content-type") == media.encode()
                assert (document["type"] == "error") is anthropics
                assert (document["status"], document["error"]["message"]) == (451, "no")

    run(main)
