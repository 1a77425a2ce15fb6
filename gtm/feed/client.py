"""An edge's line to control: the feed down, reports up."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

import httpx
import msgspec

from gtm.feed.wire import MAX_LINE, EdgeReply, EdgeReport, FeedError, Message, SnapshotMessage, decode
from gtm.transport import tls_context

SILENCE = 5.0
"""Seconds without a message (control sends a heartbeat every second) after which the line counts as dead."""


class ControlUnreachable(Exception):  # noqa: N818 - it names a state of the world, not a mistake
    """Control cannot be reached, or refuses; the message says which and what to do."""


class TokenRefused(ControlUnreachable):
    """Control is there, but does not accept this edge's token."""


class FeedClient:
    """Speaks to one control address.

    Args:
        url: control's base URL, as in `http://127.0.0.1:8080`.
        token: a bearer token of role `edge`.
        edge: this edge's name.
        ca_file: certificates that count besides the public ones, None for no others.

    Raises:
        CertificatesError: it cannot be read.
    """

    def __init__(self, url: str, token: str, edge: str, ca_file: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self.edge = edge
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(3.0, read=SILENCE),
            verify=tls_context(ca_file),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def messages(self, held: SnapshotMessage | None) -> AsyncIterator[Message]:
        """The feed, from connecting until it breaks. Messages of unknown type are skipped.

        Args:
            held: the snapshot already held; control sends its own if it is another.

        Raises:
            ControlUnreachable: no connection, a refusal, silence, or the end of the stream; of a token refused,
                `TokenRefused`.
            FeedError: a message that cannot be read.
        """
        try:
            params = {"edge": self.edge, "revision": "0"}
            if held is not None:
                params |= {"revision": str(held.revision), "sha256": held.sha256}
            async with self._http.stream("GET", "/v1/feed", params=params) as response:
                await self._check(response)
                async for line in _lines(response):
                    message = decode(line)
                    if message is not None:
                        yield message
        except httpx.HTTPError as error:
            raise ControlUnreachable(f"{self.url}: {_met(error)}") from error
        raise ControlUnreachable(f"{self.url}: control closed the feed")

    async def report(self, report: EdgeReport) -> EdgeReply:
        """Tell control what this edge sees.

        Raises:
            ControlUnreachable: no connection, a refusal, or a reply that cannot be read.
        """
        try:
            response = await self._http.post(
                f"/v1/edges/{quote(self.edge, safe='')}/report",
                content=msgspec.json.encode(report),
                headers={"Content-Type": "application/json"},
            )
            await self._check(response)
            return msgspec.json.decode(response.content or b"{}", type=EdgeReply)
        except httpx.HTTPError as error:
            raise ControlUnreachable(f"{self.url}: {_met(error)}") from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise ControlUnreachable(f"{self.url}: the reply to a report cannot be read: {error}") from error

    async def _check(self, response: httpx.Response) -> None:
        if response.status_code in (401, 403):
            raise TokenRefused(
                f"{self.url}: control does not accept this edge's token (HTTP {response.status_code}); "
                "set GTM_TOKEN to one made by `gtm token create NAME --role edge`"
            )
        if not response.is_success:
            raise ControlUnreachable(f"{self.url}: HTTP {response.status_code}")


def _met(error: httpx.HTTPError) -> str:
    """What a request met: where the operating system refused it, in that system's words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):  # one for each address of a host name
            cause = cause.exceptions[0]
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not accepted ({cause.verify_message}); if a CA of your own signed it, "
                "name that with GTM_CA_FILE or SSL_CERT_FILE"
            )
        # TLS errors are OSErrors too, whose numbers are not the system's; those of name look-ups are negative.
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):
            number = cause.errno or 0
            if number > 0:
                return os.strerror(number).lower()
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Whole lines of a stream, each at most MAX_LINE long."""
    pending = bytearray()
    async for chunk in response.aiter_bytes():
        pending += chunk
        if b"\n" not in chunk:
            if len(pending) > MAX_LINE:
                raise FeedError(f"message of more than {MAX_LINE} bytes")
            continue
        *lines, rest = pending.split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            yield bytes(line)
