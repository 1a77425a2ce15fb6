"""One request's answer on its way to the client: as the engine makes tokens, or whole at the end."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from gtm.demo.backend import wire
from gtm.demo.backend.engine import Job
from gtm.demo.backend.faults import InjectedFault, Mode
from gtm.demo.backend.meters import orca_header
from gtm.demo.backend.protocol import Connection, Request
from gtm.demo.backend.scheduler import Phase

if TYPE_CHECKING:
    from gtm.demo.backend.server import Backend


class Answering:
    """Follows a job; how far it is written is all that it keeps, for tokens can be made again.

    Args:
        backend: whose job it is.
        connection: where the answer goes.
        request: that is answered.
        writer: of the answer.
    """

    __slots__ = ("_backend", "_connection", "_held", "_request", "_sent", "_stalled", "_writer", "job")

    def __init__(
        self, backend: Backend, connection: Connection, request: Request, writer: wire.Writer
    ) -> None:
        self._backend = backend
        self._connection = connection
        self._request = request
        self._writer = writer
        self._sent = 0
        self._held: asyncio.TimerHandle | None = None
        self._stalled = False
        self.job: Job

    def begin(self, job: Job) -> None:
        """The engine has taken the request."""
        self.job = job
        self._connection.on_lost = self.gone
        if job.wanted.stream:
            self._connection.on_resumed = self.progressed
            self._connection.open()

    def gone(self) -> None:
        """The client is."""
        if self._held is not None:
            self._held.cancel()
        self._backend.cancel(self)

    def progressed(self) -> None:
        """Write what is new."""
        job = self.job
        if self._held is not None:
            return
        if job.error is not None:
            self._fail()
            return
        limit = job.generated
        fault = self._backend.engine.fault
        if fault.mode is Mode.RESET and limit >= fault.after:
            self._stream(fault.after)
            self._connection.reset()
            return
        if fault.mode is Mode.STALL and limit >= fault.after and not self._stalled:
            self._stream(fault.after)
            self._stall(fault)
            return
        if job.wanted.stream:
            if not self._connection.paused:
                self._stream(limit)
        elif job.phase is Phase.FINISHED:
            self._whole()

    def release(self) -> None:
        """Go on after a stall."""
        if self._held is not None:
            self._held.cancel()
            self._held = None
            self.progressed()

    def _stream(self, limit: int) -> None:
        """Write a stream up to a token, and its end after the last."""
        job, writer, sent = self.job, self._writer, self._sent
        if not job.wanted.stream or limit <= sent:
            return
        word, token = job.content.word, writer.token
        if limit == sent + 1 and sent:
            data = token(word(sent))
        else:
            opening = b"" if sent else writer.opening()
            data = opening + b"".join([token(word(number)) for number in range(sent, limit)])
        self._sent = limit
        if limit == job.answer_tokens:
            self._backend.ended(self)
            self._connection.write(data + writer.closing(job.reason, self._usage()))
            self._connection.close_stream()
        else:
            self._connection.write(data)

    def _whole(self) -> None:
        job = self.job
        headers = {}
        form = self._request.headers.get("endpoint-load-metrics-format")
        load = orca_header(form, self._backend.reading()) if form else None
        if load is not None:
            headers["endpoint-load-metrics"] = load
        self._backend.ended(self)
        text = job.content.text(job.generated)
        self._connection.respond(
            HTTPStatus.OK, self._writer.whole(text, job.reason, self._usage()), headers=headers
        )

    def _fail(self) -> None:
        error = self.job.error
        assert error is not None  # noqa: S101 - that is why this is called
        self._backend.ended(self)
        if self.job.wanted.stream:
            self._connection.write(self._writer.failure(error.document()))
            self._connection.close_stream()
        else:
            self._connection.fail(error)

    def _stall(self, fault: InjectedFault) -> None:
        self._stalled = True
        self._held = asyncio.get_running_loop().call_later(fault.pause, self.release)

    def _usage(self) -> dict[str, object]:
        job = self.job
        return wire.usage(job.content.prompt_tokens, job.generated, job.cached_tokens)
