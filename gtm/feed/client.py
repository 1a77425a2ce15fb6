"""An edge's line to control: the feed down, reports up; and a balancer's, which only follows."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

import httpx
import msgspec

from gtm.feed.reports import EdgeReply, EdgeReport
from gtm.feed.sealing import SealingKey
from gtm.feed.wire import (
    EDGE_NAME,
    MAX_LINE,
    SEALING_KEY,
    FeedError,
    KeysMessage,
    Message,
    SealedKeysMessage,
    SnapshotMessage,
    decode,
)
from gtm.nesting import shallow
from gtm.secret import remember, said
from gtm.transport import context_for

_MAX_DETAIL = 1000
_TOO_LONG = f"message of more than {MAX_LINE} bytes"
SILENCE = 5.0
"""Seconds without a message (control sends a heartbeat every second) after which the line counts as dead."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What is read of a problem document (RFC 9457)."""

    detail: str = ""


class ControlUnreachable(Exception):  # noqa: N818 - it names a state of the world, not a mistake
    """Control cannot be reached, or refuses; the message says which and what to do."""


class TokenRefused(ControlUnreachable):
    """Control is there, but does not accept this edge's token."""


class NameRefused(TokenRefused):
    """Control accepts the token, but not for an edge of this name; `name` is the one that it is for, if there is only one."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class _Line:
    """Speaks to one control address.

    Args:
        url: control's base URL, as in `http://127.0.0.1:8080`.
        token: a bearer token.
        name: this edge's or balancer's.
        ca_file: certificates that count besides the public ones, None for no others.
        key: what opens zone-signing keys that are sealed to this edge; None: it is sent none.
        skipped: told of each message of the feed that is left out, with the reason in words.

    Raises:
        CertificatesError: `ca_file` cannot be read.
    """

    _whose = ""
    """Whose token it is, and how one is made."""
    _made_by = ""

    def __init__(
        self,
        url: str,
        token: str,
        name: str,
        ca_file: Path | None = None,
        *,
        key: SealingKey | None = None,
        skipped: Callable[[str], None] = lambda _: None,
    ) -> None:
        remember(token)
        self.url = url.rstrip("/")
        self.name = name
        self._token = token
        self._key = key
        self._skipped = skipped
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(3.0, read=SILENCE),
            verify=context_for(self.url, ca_file, direct=True),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def _feed(self) -> tuple[str, dict[str, str], dict[str, str]]:
        """Where the feed is: path, query and headers."""
        raise NotImplementedError

    async def messages(self, held: SnapshotMessage | None) -> AsyncIterator[Message]:
        """The feed, from connecting until it breaks.

        Messages of unknown type are skipped, and so are those that are too long or cannot be read or opened: the one that
        matters may come next. Sealed keys come opened.

        Args:
            held: the snapshot already held; control sends its own if it is another.

        Raises:
            ControlUnreachable: no connection, a refusal, silence, or the end of the stream; of a token refused,
                `TokenRefused`, and of one for another edge `NameRefused`.
        """
        try:
            path, params, headers = self._feed()
            params["revision"] = "0"
            if held is not None:
                params |= {"revision": str(held.revision), "sha256": held.sha256}
            async with self._http.stream("GET", path, params=params, headers=headers) as response:
                await self._check(response)
                async for line in _lines(response.aiter_bytes(), self._skipped):
                    message = self._read(line)
                    if message is not None:
                        yield message
        except httpx.HTTPError as error:
            raise ControlUnreachable(f"{self.url}: {_met(error)}") from error
        raise ControlUnreachable(f"{self.url}: control closed the feed")

    def _read(self, line: bytes) -> Message | None:
        try:
            message = decode(line)
            return None if message is None else self._opened(message)
        except FeedError as error:
            self._skipped(str(error))
            return None

    def _opened(self, message: Message) -> Message | None:
        """A message as it is handed on.

        Raises:
            FeedError: it cannot be opened.
        """
        return message

    async def _check(self, response: httpx.Response) -> None:
        edges = response.headers.get(EDGE_NAME)
        if response.status_code == 403 and edges is not None:
            raise NameRefused(
                f"{self.url}: {await _detail(response)} (HTTP 403)", "" if "*" in edges else edges
            )
        if response.status_code in (401, 403):
            raise TokenRefused(
                f"{self.url}: control does not accept this {self._whose}'s token (HTTP {response.status_code}); "
                f"set GTM_TOKEN to one made by `{self._made_by}`"
            )
        if not response.is_success:
            there = (
                ""
                if "x-gtm-tier" in response.headers
                else (
                    ": what answers there is not gtm's control (an edge, or a proxy?); --control, GTM_CONTROL_URL: give "
                    "control's own address, port 8080 unless it was told another"
                )
            )
            why = f" ({await _detail(response)})" if response.status_code == 503 and not there else ""
            raise ControlUnreachable(f"{self.url}: HTTP {response.status_code}{why}{there}")


class FeedClient(_Line):
    """An edge's line to one control address. `token` has the role `edge`."""

    _whose = "edge"
    _made_by = "gtm token create NAME --role edge"

    def _feed(self) -> tuple[str, dict[str, str], dict[str, str]]:
        headers = {} if self._key is None else {SEALING_KEY: self._key.public}
        return "/v1/feed", {"edge": self.name}, headers

    def _opened(self, message: Message) -> Message | None:
        if self._key is None or not isinstance(message, SealedKeysMessage):
            return message
        return self._key.open(message, self.name, self._token)

    async def report(self, report: EdgeReport) -> EdgeReply:
        """Tell control what this edge sees.

        Raises:
            ControlUnreachable: no connection, a refusal, or a reply that cannot be read.
        """
        try:
            response = await self._http.post(
                f"/v1/edges/{quote(self.name, safe='')}/report",
                content=msgspec.json.encode(report),
                headers={"Content-Type": "application/json"},
            )
            await self._check(response)
            return msgspec.json.decode(shallow(response.content or b"{}"), type=EdgeReply)
        except httpx.HTTPError as error:
            raise ControlUnreachable(f"{self.url}: {_met(error)}") from error
        except ValueError as error:
            raise ControlUnreachable(f"{self.url}: the reply to a report cannot be read: {error}") from error


class BalancerFeedClient(_Line):
    """A balancer's line to one control address. It is sent no zone-signing keys, and would not take any. `token` has the role `balancer`."""

    _whose = "balancer"
    _made_by = "gtm token create NAME --role balancer --regions REGION"

    def _feed(self) -> tuple[str, dict[str, str], dict[str, str]]:
        return f"/v1/balancers/{quote(self.name, safe='')}/feed", {}, {}

    def _opened(self, message: Message) -> Message | None:
        if isinstance(message, KeysMessage | SealedKeysMessage):
            raise FeedError("zone-signing keys, which no balancer is to have")
        return message


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
    return said(error)


async def _detail(response: httpx.Response) -> str:
    """What a refusal says for people."""
    body = await response.aread()
    try:
        return msgspec.json.decode(shallow(body), type=_Refusal).detail[:_MAX_DETAIL]
    except ValueError:
        return "it does not say why"


async def _lines(chunks: AsyncIterator[bytes], skipped: Callable[[str], None]) -> AsyncIterator[bytes]:
    """Whole lines of a stream, each at most MAX_LINE long. Of a longer one nothing is kept."""
    pending = bytearray()
    skipping = False
    async for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if not skipping and len(pending) + len(line) <= MAX_LINE:
                yield bytes(pending) + line
            elif not skipping:
                skipped(_TOO_LONG)
            pending.clear()
            skipping = False
        if skipping:
            continue
        pending += rest
        if len(pending) > MAX_LINE:
            skipped(_TOO_LONG)
            pending.clear()
            skipping = True
