"""What nobody foresaw is control's failure, and says so."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from gtm.api.middleware import Counting, Metrics


def test_a_failure_is_controls_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its answer has the header that tells control from a proxy before it, without which commands say that gtm is not there."""

    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("the cause")

    metrics = Metrics()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Counting(fails, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return await client.get("/v1/x?secret=1")

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.headers["x-gtm-tier"]) == (500, "control")
    assert answer.json()["detail"] == "gtm made a mistake; its log says which"
    assert answer.json()["instance"] == "/v1/x"
    (record,) = [one for one in caplog.records if one.name == "gtm.api.problems"]
    assert record.getMessage() == "unexpected error at GET /v1/x"
    assert "the cause" in caplog.text
    counted = metrics.registry.get_sample_value(
        "gtm_control_requests_total", {"method": "GET", "route": "unmatched", "status": "500"}
    )
    assert counted == 1


def test_an_answer_that_breaks_off_is_left_to_the_server() -> None:
    """Half of an answer cannot be taken back: the connection is closed, as clients know it."""

    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("the cause")

    async def ask() -> None:
        transport = httpx.ASGITransport(Counting(breaks, Metrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            await client.get("/v1/x")

    with pytest.raises(RuntimeError, match="the cause"):
        asyncio.run(ask())
