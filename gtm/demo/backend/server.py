"""Backends on sockets: paths, timers, and the switch that makes them fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import count
from typing import Any, TypeVar

import msgspec

import gtm
from gtm.demo.backend import wire
from gtm.demo.backend.engine import Engine
from gtm.demo.backend.errors import ApiError, bad_request
from gtm.demo.backend.faults import HEALTHY, FaultError, InjectedFault, Mode, read_fault
from gtm.demo.backend.meters import Reading, metrics_text
from gtm.demo.backend.models import Models
from gtm.demo.backend.profile import Profile
from gtm.demo.backend.protocol import Connection, HttpServer, Request, query
from gtm.demo.backend.requests import read_chat, read_completion
from gtm.demo.backend.streams import Answering
from gtm.nesting import shallow

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_NOT_FOUND = "there is no such path here"
_Body = TypeVar("_Body")


class Backend(HttpServer):
    """One simulated model server: an engine, a timer for all its streams, and an address.

    Args:
        profile: its size and speed.
        models: the names of models that it serves.
        loaded: whether these are loaded at the beginning, else they are loaded from then on.
        on_demand: whether requests load models that are not loaded.
    """

    def __init__(
        self, profile: Profile, models: Sequence[str], *, loaded: bool = True, on_demand: bool = False
    ) -> None:
        super().__init__(self.handle)
        self.engine = Engine(profile, Models(profile, models, loaded=loaded, on_demand=on_demand))
        self._loaded = loaded
        self.answers: set[Answering] = set()
        """Those that are not written to their end."""
        self._numbers = count(1)
        self._created = int(time.time())
        self._address: tuple[str, int] = ("127.0.0.1", 0)
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._over: asyncio.TimerHandle | None = None
        self._switching: set[asyncio.Task[None]] = set()
        self._switch_lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    @property
    def url(self) -> str:
        """The URL at which the server answers."""
        host, port = self._address
        return f"http://{host}:{port}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the address is taken.
        """
        self._address = (host, await self.listen(host, port))
        if not self._loaded:
            self._loaded = True
            for name in self.engine.models.names:
                self.engine.models.load(name, self._loop.time())

    def stop(self) -> None:
        super().stop()
        for timer in (self._timer, self._over):
            if timer is not None:
                timer.cancel()
        self._timer = self._over = None

    def switch_soon(self, fault: InjectedFault) -> None:
        """Fail in a way, or go on, once what is answered now is written."""
        task = self._loop.create_task(self.switch(fault))
        self._switching.add(task)
        task.add_done_callback(self._switching.discard)

    async def switch(self, fault: InjectedFault) -> None:
        """Fail in a way from now on, or go on.

        Raises:
            OSError: it did not listen, and its address has been taken meanwhile.
        """
        async with self._switch_lock:
            await self._switch(fault)

    async def _switch(self, fault: InjectedFault) -> None:
        if self._over is not None:
            self._over.cancel()
            self._over = None
        ended = self.engine.switch(fault, self._loop.time())
        for job in ended:
            job.listener.progressed()
        if fault.mode is not Mode.STALL:
            for answer in list(self.answers):
                answer.release()
        if fault.mode is Mode.REFUSE:
            self.stop()
        elif not self.listening:
            await self.start(*self._address)
        if fault.ends_after is not None:
            self._over = self._loop.call_later(fault.ends_after, self.switch_soon, HEALTHY)
        self._wake()

    def resize(self, slots: int) -> None:
        """Have so many slots from now on; what runs goes on.

        Raises:
            ProfileError: a server cannot have so many.
        """
        self.engine.resize(slots)
        self._wake()

    def cancel(self, answer: Answering) -> None:
        """The client of an answer is gone: what it held is free from now on."""
        self.engine.cancel(answer.job)
        self.ended(answer)

    def ended(self, answer: Answering) -> None:
        """An answer is written, or nobody wants it."""
        self.answers.discard(answer)

    def reading(self) -> Reading:
        """The figures that the page of metrics shows now."""
        return self.engine.reading(time.time())

    def state(self) -> dict[str, Any]:
        """The server's state, for its own page."""
        found = self.engine.state(self._loop.time())
        return {"url": self.url, "connections": len(self.connections), **found}

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer a request, now or later."""
        path = request.path
        if self.engine.fault.mode is Mode.HANG and not path.startswith("/demo/"):
            return
        try:
            handler = _ROUTES.get((request.method.replace("HEAD", "GET"), path))
            if handler is None:
                raise _no_route(path)
            handler(self, connection, request)
        except ApiError as error:
            connection.fail(error)

    # Routes.

    def generate(self, connection: Connection, request: Request) -> None:
        """POST /v1/chat/completions and /v1/completions."""
        read = read_chat if request.path == "/v1/chat/completions" else read_completion
        wanted = read(request.body)
        writer = wire.Writer(wanted, f"{next(self._numbers):024x}", int(time.time()), framed=request.chunks)
        answer = Answering(self, connection, request, writer)
        job = self.engine.submit(wanted, answer, self._loop.time())
        self.answers.add(answer)
        answer.begin(job)
        self._wake()

    def models(self, connection: Connection, _: Request) -> None:
        """GET /v1/models."""
        unloaded = self.engine.fault.mode is Mode.UNLOADED
        cards = [] if unloaded else self.engine.models.cards(self._loop.time(), self._created)
        connection.respond(HTTPStatus.OK, _json({"object": "list", "data": cards}))

    def health(self, connection: Connection, _: Request) -> None:
        """GET /health: 503 where vLLM's engine has died, or is not up yet; 200 says nothing else."""
        down = self.engine.fault.mode is Mode.OOM or self.engine.models.loading(self._loop.time())
        connection.respond(HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.OK, b"")

    def version(self, connection: Connection, _: Request) -> None:
        """GET /version."""
        connection.respond(HTTPStatus.OK, _json({"version": f"gtm-demo-{gtm.__version__}"}))

    def metrics(self, connection: Connection, _: Request) -> None:
        """GET /metrics."""
        connection.respond(HTTPStatus.OK, metrics_text(self.reading()), METRICS)

    def load_adapter(self, connection: Connection, request: Request) -> None:
        """POST /v1/load_lora_adapter: answered when it is loaded."""
        wanted = decoded(request, _Adapter)
        at = self.engine.models.load_adapter(
            wanted.lora_name, wanted.lora_path, self._loop.time(), wanted.base_model_name
        )
        body = f"Success: LoRA adapter '{wanted.lora_name}' added successfully.".encode()
        timer = self._loop.call_at(at, connection.respond, HTTPStatus.OK, body, "text/plain")
        connection.on_lost = timer.cancel

    def unload_adapter(self, connection: Connection, request: Request) -> None:
        """POST /v1/unload_lora_adapter."""
        name = decoded(request, _Adapter).lora_name
        self.engine.models.unload_adapter(name)
        body = f"Success: LoRA adapter '{name}' removed successfully.".encode()
        connection.respond(HTTPStatus.OK, body, "text/plain")

    def reset_cache(self, connection: Connection, _: Request) -> None:
        """POST /reset_prefix_cache."""
        self.engine.scheduler.blocks.forget()
        connection.respond(HTTPStatus.OK, b"")

    def show(self, connection: Connection, _: Request) -> None:
        """GET /demo/state."""
        connection.respond(HTTPStatus.OK, _json(self.state()))

    def fail(self, connection: Connection, request: Request) -> None:
        """POST /demo/fail: answered before it takes effect."""
        fault = fault_of(request)
        connection.respond(HTTPStatus.OK, _json({"mode": fault.mode.value}))
        self.switch_soon(fault)

    def load(self, connection: Connection, request: Request) -> None:
        """POST /demo/load and /demo/unload: a model."""
        name = decoded(request, _Model, 'the body must be {"model": …}').model
        if request.path == "/demo/load":
            self.engine.models.load(name, self._loop.time())
        else:
            self.engine.models.unload(name)
        self._wake()
        self.show(connection, request)

    # Time.

    def _wake(self) -> None:
        """Look at the engine once this round of the event loop has taken all that has arrived."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        touched, again = self.engine.advance(self._loop.time())
        self._timer = None if again is None else self._loop.call_at(again, self._tick)
        for job in touched:
            job.listener.progressed()


Route = Callable[[Backend, Connection, Request], None]
_ROUTES: dict[tuple[str, str], Route] = {
    ("POST", "/v1/chat/completions"): Backend.generate,
    ("POST", "/v1/completions"): Backend.generate,
    ("GET", "/v1/models"): Backend.models,
    ("GET", "/health"): Backend.health,
    ("GET", "/version"): Backend.version,
    ("GET", "/metrics"): Backend.metrics,
    ("POST", "/v1/load_lora_adapter"): Backend.load_adapter,
    ("POST", "/v1/unload_lora_adapter"): Backend.unload_adapter,
    ("POST", "/reset_prefix_cache"): Backend.reset_cache,
    ("GET", "/demo/state"): Backend.show,
    ("POST", "/demo/fail"): Backend.fail,
    ("POST", "/demo/load"): Backend.load,
    ("POST", "/demo/unload"): Backend.load,
}


class Switch(HttpServer):
    """One address from which all backends of a process are looked at and made to fail, those too that refuse connections.

    Args:
        backends: of the process.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        super().__init__(self.handle)
        self._backends = backends

    async def start(self, host: str, port: int) -> str:
        """Listen; the URL.

        Raises:
            OSError: the address is taken.
        """
        return f"http://{host}:{await self.listen(host, port)}"

    def handle(self, connection: Connection, request: Request) -> None:
        """GET /demo/state; POST /demo/fail, of `?backend=N` (from 0) or all."""
        try:
            if (request.method, request.path) == ("POST", "/demo/fail"):
                chosen, fault = self._chosen(request), fault_of(request)
                for one in chosen:
                    one.switch_soon(fault)
            elif (request.method, request.path) != ("GET", "/demo/state"):
                raise _no_route(request.path)
        except ApiError as error:
            connection.fail(error)
            return
        asyncio.get_running_loop().call_soon(self._show, connection)

    def _show(self, connection: Connection) -> None:
        connection.respond(HTTPStatus.OK, _json({"backends": [one.state() for one in self._backends]}))

    def _chosen(self, request: Request) -> Sequence[Backend]:
        stated = query(request).get("backend")
        if stated is None:
            return self._backends
        if (
            not stated.isascii()
            or not stated.isdigit()
            or len(stated) > 6
            or int(stated) >= len(self._backends)
        ):
            raise bad_request(
                f"`backend` must be 0 to {len(self._backends) - 1}, not `{stated[:20]}`", param="backend"
            )
        return self._backends[int(stated) :][:1]


def fault_of(request: Request) -> InjectedFault:
    """The fault in a request's body.

    Raises:
        ApiError: 400, it is none.
    """
    try:
        return read_fault(request.body)
    except FaultError as error:
        raise bad_request(str(error), "no_fault", "mode") from error


class _Adapter(msgspec.Struct):
    lora_name: str = ""
    lora_path: str = ""
    base_model_name: str | None = None


class _Model(msgspec.Struct):
    model: str


def decoded(request: Request, kind: type[_Body], wrong: str = "the body is not such a request") -> _Body:
    """What a request's body holds.

    Raises:
        ApiError: 400, it is none.
    """
    try:
        return msgspec.json.decode(shallow(request.body), type=kind)
    except ValueError as error:
        raise bad_request(f"{wrong}: {error}", "invalid_json") from error


def _no_route(path: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, f"{_NOT_FOUND}: `{path[:200]}`", "not_found")


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
