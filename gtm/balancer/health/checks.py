"""The loops that check backends and read what they say of their load.

Laws:
  1. Never two of one kind in flight to one backend; at most `AT_ONCE` of one kind in flight to all that ended in time when last asked,
     and as many to all others.
  2. A check that hangs delays no other kind; nor another backend, but for the first time that more than `AT_ONCE` hang at once: after that they
     wait among themselves.
  3. Whatever a backend answers is a result; no loop ends by it.
  4. What could not be asked for want of descriptors or memory here says nothing of the backend.
  5. What was asked of a backend that has left the configuration since says nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gtm.adapters.exposition import MAX_BYTES, MetricsError
from gtm.adapters.listing import MAX_LIST, Listed, read_list
from gtm.balancer.health.asking import Answer, AskingError, NoRoomError, ask
from gtm.balancer.health.check_settings import (
    CheckSettings,
    CompletionCheck,
    GrpcHealthCheck,
    HealthCheck,
    MetricsScrape,
    ModelList,
)
from gtm.balancer.health.grpc import check_grpc
from gtm.balancer.health.scraping import Scraper
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.wire.tls import BackendTls, backend_context
from gtm.core.balance.backends import Backend, Scraped
from gtm.core.balance.flights import Flights
from gtm.core.balance.health import BackendHealth, Check, Load
from gtm.core.health.verdicts import ProbeResult
from gtm.nesting import NestingError, shallow

logger = logging.getLogger(__name__)

AT_ONCE = 128
"""Requests of one kind in flight to all backends: those that wait for tokens take no place of those that look for life."""
_HUNG = 0.9
"""Part of its time-out from which on one took so long that it may as well have hung."""
MAX_BODY = 64 * 1024
"""Bytes of the answer to a check."""
ABSENT = 30.0
"""Seconds until a backend without metrics or a list is asked for them again."""
_SHORTEST = 0.9
"""They follow each other at 90 to 100% of the interval, so that backends are not asked in step."""
_AGAIN = 1.0
"""Seconds from a check that could not be made for want of room here to the next."""
_LEAST_PAUSE = 0.02


@dataclass(slots=True, eq=False)
class _Watched:
    """A backend, and what was heard of it. `first`: of each kind, whether it was made once."""

    backend: Backend
    route: Route
    scraper: Scraper
    listed: Listed | None = None
    scraped_at: float | None = None
    cold: bool = False
    """It was down, and was not warmed up since."""
    said: dict[str, str] = field(default_factory=dict)
    """What is wrong now, by kind."""
    first: list[asyncio.Event] = field(default_factory=list)
    loops: list[asyncio.Task[None]] = field(default_factory=list)


class Checks:
    """See above. Belongs to one event loop, in which it is made.

    Args:
        settings: of all checks. `health` was made with `settings.thresholds()`.
        health: is told of all results.
        changed: called when it may have changes to tell at once.
        flights: is told of scrapes, besides.
        http2: what https backends must show to checks by gRPC; offers HTTP/2.
        not_made: called for each check or scrape that could not be made for want of descriptors or memory here.
        cached: is told how many tokens a backend's cache holds, where it says so.
    """

    def __init__(
        self,
        settings: CheckSettings,
        health: BackendHealth,
        changed: Callable[[], None],
        flights: Flights | None = None,
        http2: Callable[[], ssl.SSLContext] = lambda: backend_context(BackendTls(), "h2"),
        *,
        cached: Callable[[str, float], None] | None = None,
        not_made: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._health = health
        self._changed = changed
        self._flights = flights
        self._cached = cached
        self._http2 = http2
        self._now = asyncio.get_running_loop().time
        self._slots = [(asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_ONCE)) for _ in range(4)]
        self._watched: dict[str, _Watched] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._not_made = not_made
        self._without_room = False

    def update(self, targets: Iterable[tuple[Backend, Route]]) -> None:
        """Check these from now on: new ones at once. Tell `health` of the same backends before."""
        before, self._watched = self._watched, {}
        for backend, route in targets:
            found = before.get(backend.name)
            if found is not None and found.route is route:
                found.backend = backend
                del before[backend.name]
            else:
                found = self._start(backend, route)
            self._watched[backend.name] = found
        for gone in before.values():
            self._end(gone)

    async def first_round(self, timeout: float) -> bool:  # noqa: ASYNC109 - giving up is the point, not an error
        """Wait until all was asked once of every backend. Nothing should listen before.

        Args:
            timeout: the longest wait in seconds.

        Returns:
            Whether all was; what was not is unknown.
        """
        waits = [
            asyncio.ensure_future(event.wait())
            for watched in self._watched.values()
            for event in watched.first
        ]
        if not waits:
            return True
        _, pending = await asyncio.wait(waits, timeout=timeout)
        for wait in pending:
            wait.cancel()
        return not pending

    async def stop(self) -> None:
        """End all, what is in flight too."""
        self.update(())
        await asyncio.gather(*self._ending, return_exceptions=True)

    def problems(self) -> dict[str, dict[str, str]]:
        """Backend → what was asked of it (`health`, `models`, `completion`, `scrape`) → what is wrong, in words."""
        return {
            name: {kind: words for kind, words in watched.said.items() if words}
            for name, watched in self._watched.items()
        }

    def signals(self, lasts: float) -> dict[str, Mapping[str, float]]:
        """Backend → what its metrics said within so many seconds, as load reports have it; who said nothing is not there."""
        now = self._now()
        return {
            name: watched.scraper.signals
            for name, watched in self._watched.items()
            if watched.scraped_at is not None and now - watched.scraped_at <= lasts
        }

    # --- loops ---

    def _start(self, backend: Backend, route: Route) -> _Watched:
        settings = self._settings
        scraper = Scraper(settings.scrape.server_type if settings.scrape is not None else None)
        watched = _Watched(backend, route, scraper)
        asked: list[tuple[Callable[[], Awaitable[float]], float] | None] = [None] * len(self._slots)
        if settings.health is not None:
            asked[0] = partial(self._check_health, watched, settings.health), settings.health.timeout
        if settings.models is not None:
            asked[1] = partial(self._list_models, watched, settings.models), settings.models.timeout
        if settings.completion is not None:
            asked[2] = (
                partial(self._check_completion, watched, settings.completion),
                settings.completion.timeout,
            )
        if settings.scrape is not None:
            asked[3] = partial(self._scrape, watched, settings.scrape), settings.scrape.timeout
        loop = asyncio.get_running_loop()
        for one, slots in zip(asked, self._slots, strict=True):
            if one is not None:
                event = asyncio.Event()
                watched.first.append(event)
                watched.loops.append(loop.create_task(self._repeat(*one, slots, event)))
        return watched

    def _end(self, watched: _Watched) -> None:
        for task in watched.loops:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for event in watched.first:
            event.set()

    async def _repeat(
        self,
        asked: Callable[[], Awaitable[float]],
        timeout: float,  # noqa: ASYNC109 - what is asked keeps to it
        slots: tuple[asyncio.Semaphore, asyncio.Semaphore],
        first: asyncio.Event,
    ) -> None:
        hung = False
        while True:
            began = self._now()
            interval = ABSENT
            try:
                async with slots[hung]:
                    began = self._now()
                    interval = await asked()
                self._without_room = False
            except NoRoomError:
                interval = _AGAIN
                self._note_no_room()
            except Exception:
                logger.exception("a check of a backend could not be made")
            first.set()
            took = self._now() - began
            hung = took >= _HUNG * timeout
            pause = interval * random.uniform(_SHORTEST, 1) - took
            await asyncio.sleep(max(pause, _LEAST_PAUSE))

    def _note_no_room(self) -> None:
        """Something could not be asked, which says nothing of the backend: what is known of it stays."""
        self._not_made()
        if not self._without_room:
            self._without_room = True
            logger.error(
                "backends cannot be checked: this process has no descriptors or memory left for connections; what is known of them stays as it "
                "is. Let it have more descriptors (LimitNOFILE, ulimit -n)"
            )

    # --- what is asked: each returns the seconds from its beginning to the next ---

    async def _check_health(self, watched: _Watched, check: HealthCheck | GrpcHealthCheck) -> float:
        answer: Answer | None = None
        wrong = ""
        try:
            if isinstance(check, GrpcHealthCheck):
                answer = await self._ask_grpc(watched.route, check)
            else:
                answer = await ask(
                    watched.route, check.path, timeout=check.timeout, most=MAX_BODY, port=check.port
                )
                wrong = _unexpected(answer, check.status)
                if wrong and answer.status == 404:
                    wrong += f": it has no `{check.path}`; set `path` to one that it has (Triton: /v2/health/ready)"
        except AskingError as error:
            wrong = str(error)
        if watched.cold and not wrong:
            await self._warm_up(watched)
        watched.cold = bool(wrong)
        self._result(watched, Check.HEALTH, wrong, answer)
        return check.interval

    async def _ask_grpc(self, route: Route, check: GrpcHealthCheck) -> Answer:
        tls = None if route.tls is None else self._http2()
        return await check_grpc(route, check.service, timeout=check.timeout, port=check.port, tls=tls)

    async def _list_models(self, watched: _Watched, models: ModelList) -> float:
        answer: Answer | None = None
        wrong = ""
        try:
            answer = await ask(watched.route, models.path, timeout=models.timeout, most=MAX_LIST)
            wrong = _unexpected(answer, (200,))
            if not wrong:
                watched.listed = found = read_list(answer.body)
                self._health.listed(watched.backend.name, found.models, found.adapters, self._now())
                wrong = _missing(watched.backend, found) if models.required else ""
        except (AskingError, MetricsError) as error:
            wrong = str(error)
        if models.required:
            self._result(watched, Check.MODELS, wrong, answer)
            return models.interval
        self._note(watched, "models", wrong)
        return models.interval if answer is None or answer.status != 404 else max(ABSENT, models.interval)

    async def _check_completion(self, watched: _Watched, check: CompletionCheck) -> float:
        answer: Answer | None = None
        try:
            model = await self._model(watched, check)
            answer = await _complete(watched.route, check, model)
            wrong = _unexpected(answer, (200,)) or tokenless(answer)
            if answer.status == 404:
                wrong += f": it has no `{check.path}`, or no model `{model[:80]}`"
        except (AskingError, MetricsError) as error:
            wrong = str(error)
        self._result(watched, Check.COMPLETION, wrong, answer)
        return min(check.timeout, check.interval) if wrong else check.interval

    async def _scrape(self, watched: _Watched, scrape: MetricsScrape) -> float:
        name = watched.backend.name
        if self._flights is not None:
            self._flights.asking(name)
        try:
            answer = await ask(
                watched.route, scrape.path, timeout=scrape.timeout, most=MAX_BYTES, port=scrape.port
            )
            wrong = _unexpected(answer, (200,))
            if wrong:
                self._note(watched, "scrape", f"{wrong}: its load is unknown")
                return scrape.interval if answer.status != 404 else max(ABSENT, scrape.interval)
            now = self._now()
            load = watched.scraper.read(answer.body, now)
            watched.scraped_at = now
        except (AskingError, MetricsError) as error:
            self._note(watched, "scrape", f"{error}: its load is unknown")
            return scrape.interval
        self._note(watched, "scrape", "")
        self._heard(name, load, now)
        return scrape.interval

    async def _model(self, watched: _Watched, check: CompletionCheck) -> str:
        """The model to complete with."""
        if check.model is not None:
            return check.model
        if watched.backend.models:
            return min(watched.backend.models)
        if watched.listed is None or not watched.listed.models:
            path = (self._settings.models or ModelList()).path
            answer = await ask(watched.route, path, timeout=check.timeout, most=MAX_LIST)
            watched.listed = read_list(answer.body)
            if not watched.listed.models:
                raise MetricsError("it lists no model to complete with; set `model`")
        return min(watched.listed.models)

    async def _warm_up(self, watched: _Watched) -> None:
        """Let it generate some tokens, whatever comes of it."""
        check = self._settings.completion or CompletionCheck()
        for _ in range(self._settings.warm_up):
            try:
                await _complete(watched.route, check, await self._model(watched, check))
            except (AskingError, NoRoomError, MetricsError):
                return

    # --- what comes of it ---

    def _heard(self, name: str, load: Load, now: float) -> None:
        self._health.scraped(name, load, now)
        if self._flights is not None and load.running is not None and load.waiting is not None:
            self._flights.scraped(name, Scraped(load.running, load.waiting, now))
        if self._cached is not None and load.cache_tokens is not None:
            self._cached(name, load.cache_tokens)

    def _result(self, watched: _Watched, check: Check, wrong: str, answer: Answer | None = None) -> None:
        """A check's result: `wrong` is empty if it passed."""
        now = self._now()
        latency = None if answer is None else round(answer.seconds * 1000, 3)
        self._health.checked(watched.backend.name, check, ProbeResult(not wrong, now, wrong, latency), now)
        self._note(watched, check.value, wrong)
        if self._health.pending:
            self._changed()

    def _note(self, watched: _Watched, kind: str, wrong: str) -> None:
        """Log what is newly wrong, or right again."""
        before = watched.said.get(kind)
        watched.said[kind] = wrong
        if wrong and wrong != before:
            logger.warning("backend %s: %s: %s", watched.backend.name, kind, wrong)
        elif before and not wrong:
            logger.info("backend %s: %s is right again", watched.backend.name, kind)


async def _complete(route: Route, check: CompletionCheck, model: str) -> Answer:
    wanted: dict[str, object] = {"model": model, "max_tokens": 1, "temperature": 0}
    if check.path.endswith("/chat/completions"):
        wanted["messages"] = [{"role": "user", "content": "1"}]
    else:
        wanted["prompt"] = "1"
    content = msgspec.json.encode(wanted)
    return await ask(route, check.path, timeout=check.timeout, most=MAX_BODY, content=content)


def _unexpected(answer: Answer, expected: tuple[int, ...]) -> str:
    if answer.status in expected:
        return ""
    return f"status {answer.status}, expected {' or '.join(map(str, expected))}"


def _missing(backend: Backend, listed: Listed) -> str:
    """What a backend should list and does not."""
    names = listed.models | listed.adapters
    missing = sorted(backend.models - names)
    if missing:
        return f"it does not list {', '.join(missing)[:200]}"
    return "" if names else "it lists no model"


class _Completion(msgspec.Struct):
    choices: list[msgspec.Raw]


def tokenless(answer: Answer) -> str:
    """What is wrong with the answer to a completion."""
    try:
        found = msgspec.json.decode(shallow(answer.body), type=_Completion)
    except NestingError as error:
        return f"the completion is {error}"
    except ValueError:
        return "the answer is no completion"
    return "" if found.choices else "the completion has no choice"
