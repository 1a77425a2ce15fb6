"""The loops that check backends and read what they say of their load.

Laws:
  1. Never two of one kind in flight to one backend; at most `AT_ONCE` of one kind in flight to all that ended in time when last asked,
     and as many to all others.
  2. A check that hangs delays no other kind; nor another backend, but for the first time that more than `AT_ONCE` hang at once: after that they
     wait among themselves.
  3. Whatever a backend answers is a result; no loop ends by it.
  4. What could not be asked for want of descriptors or memory here says nothing of the backend.
  5. What was asked of a backend that has left the configuration since says nothing.
  6. A check that cannot work takes nobody down: 401 and 403 say that it shows no key, and 400, 404, 405, 415, 422 and 501 of a server at which it
     has never passed say that it asks for what is not there. It is switched off for that backend, which has answered and counts as it does
     without the check; what is wrong with the check is told, and it is tried again.
  7. A check that is refused for want of room passes where requests are known to be there: a server that says that it is full works, and one that
     says it of nobody's requests may be a proxy before a dead engine. Where its words are those of a dead one, too, it passes while the model's answers to live
     requests come. A completion that only ran out of time says nothing while
     the model's answers to live requests come; nor where these fill all slots of the server, for as long as such silence is usual (`_QUIET`), unless
     the server's own metrics say that its engine did nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from math import inf
from types import MappingProxyType

import msgspec

from gtm.adapters.exposition import MAX_BYTES, MetricsError
from gtm.adapters.fullness import MOST_BYTES, says_full, says_unwell
from gtm.adapters.listing import MAX_LIST, Listed, read_list
from gtm.adapters.orca import read_orca
from gtm.adapters.scrape import Scrape, signals
from gtm.adapters.servers import MODEL_SERVERS, ServerType, load_lines, read_server, recognised
from gtm.balancer.health.asking import AskingError, BackendAnswer, LateError, NoRoomError, ask, check_grpc
from gtm.balancer.health.check_settings import (
    PATHS,
    CheckSettings,
    CompletionCheck,
    CompletionKind,
    HealthCheck,
    KeyReadError,
    MetricsScrape,
    ModelList,
    OwnChecks,
)
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.wire.tls import BackendTls, backend_context
from gtm.core.balance.backends import Backend, Scraped
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.values import BackendLoad, Check
from gtm.core.balance.serving import named
from gtm.core.health.verdicts import ProbeResult
from gtm.nesting import NestingError, shallow

# --- What a backend's answers say of its load: metrics, lists of models, headers. ---
#
# Silence and damage say nothing: what was known becomes stale, and then unknown (`gtm.core.balance.health.monitor`).


@dataclass(slots=True)
class Scraper:
    """One backend's metrics, read again and again. `server_type`: what it is; None: as its metrics say."""

    server_type: ServerType | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    """What was last read, as load reports have it (`gtm.core.capacity.load.SIGNALS`)."""
    worked_at: float | None = None
    """When its engine was first seen where it is now; None: its metrics do not say where that is."""
    _before: Scrape | None = None

    def read(self, body: bytes, at: float) -> BackendLoad:
        """What its metrics say of its load.

        Args:
            body: its answer.
            at: seconds of a clock that never steps back.

        Raises:
            MetricsError: it is no such text, of no server that is known, or says neither what runs nor what waits.
        """
        text = body.decode(errors="replace")
        server_type = self.server_type or recognised(text)
        if server_type is None:
            raise MetricsError(
                f"these are metrics of no server that is known ({', '.join(MODEL_SERVERS)}): say whose they are by `type` in `scrape`, "
                "or set `scrape` to `null`"
            )
        found = read_server(server_type, load_lines(server_type, text), at)
        known = signals(self._before, found)
        if not found.progress:
            self.worked_at = None
        elif self.worked_at is None or self._before is None or found.progress != self._before.progress:
            self.worked_at = at
        self._before = found
        self.signals = known
        load = load_of(known, found)
        if load.running is None and load.waiting is None and found.missing:
            raise MetricsError(f"its metrics lack {', '.join(found.missing)}")
        return load


def load_of(known: Mapping[str, float], found: Scrape | None = None) -> BackendLoad:
    """Signals as what choosing takes: memory is the KV cache, else the GPU's; what is not there is unknown.

    Args:
        known: signals of load reports (`gtm.core.capacity.load.SIGNALS`).
        found: the scrape that they come from, for names of models and adapters.
    """
    memory = known.get("kv_cache_usage")
    total = known.get("gpu_memory_total_bytes")
    used = known.get("gpu_memory_used_bytes")
    if memory is None and total and used is not None:
        memory = used / total
    models = found.models if found is not None else ()
    adapters = found.adapters if found is not None else None
    return BackendLoad(
        running=known.get("outstanding"),
        waiting=known.get("queue"),
        memory=None if memory is None else min(max(memory, 0.0), 1.0),
        models=frozenset(models) if models else None,
        adapters=None if adapters is None else frozenset(adapters),
        cache_tokens=found.cache_tokens if found is not None else None,
    )


def load_in_header(header: bytes) -> BackendLoad | None:
    """What a response's `endpoint-load-metrics` says; None: nothing that can be read."""
    try:
        known = read_orca(header.decode("latin-1"))
    except MetricsError:
        return None
    return load_of(known) if known else None


# --- The loops that check backends and read what they say of their load. ---


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
_KEYS = frozenset((401, 403))
_NOT_THERE = frozenset((400, 404, 405, 415, 422, 501))
"""Statuses by which a server says that it does not know what a check asks for."""
ABSENT_MODEL = 300.0
"""Seconds for which a model counts as not there after a server has said so, whatever it lists."""


_QUIET = Limits().silence
"""Seconds for which a server with one slot may be silent while it works on one answer. With more slots, something comes so many times as often: a server
with many slots that is silent through a check hangs."""


@dataclass(slots=True, eq=False)
class _Watched:
    """A backend, and what was heard of it. `first`: of each kind, whether it was made once."""

    backend: Backend
    route: Route
    scraper: Scraper
    own: OwnChecks
    listed: Listed | None = None
    listed_at: float = -inf
    scraped_at: float | None = None
    cold: bool = False
    """It was down, and was not warmed up since."""
    said: dict[str, str] = field(default_factory=dict)
    """What is wrong now, by kind."""
    first: list[asyncio.Event] = field(default_factory=list)
    loops: list[asyncio.Task[None]] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    """The kinds that have passed here once."""
    kind: int = 0
    """Which of `PATHS` a completion is asked by, of a check that finds that out."""
    absent: dict[str, float] = field(default_factory=dict)
    """Models of which it has said that they are not there, and until when that counts."""
    quiet_since: float | None = None
    """When the first completion began of those in a row that ran out of time while live requests filled all slots."""
    health_asked: float = inf
    """When its health was asked for last."""


class _ListError(Exception):
    """There is no list of models to take one of, but this answer."""

    def __init__(self, answer: BackendAnswer, words: str) -> None:
        super().__init__(words)
        self.answer = answer


@dataclass(eq=False, repr=False)
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

    settings: CheckSettings
    health: BackendHealth
    changed: Callable[[], None]
    flights: Flights | None = None
    http2: Callable[[], ssl.SSLContext] = lambda: backend_context(BackendTls(), "h2")
    _: KW_ONLY
    cached: Callable[[str, float], None] | None = None
    not_made: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._slots = [(asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_ONCE)) for _ in range(4)]
        self._watched: dict[str, _Watched] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._without_room = False

    def update(
        self, targets: Iterable[tuple[Backend, Route]], own: Mapping[str, OwnChecks] = MappingProxyType({})
    ) -> None:
        """Check these from now on: new ones at once. Tell `health` of the same backends before. `own`: what checks of some have of their own."""
        before, self._watched = self._watched, {}
        for backend, route in targets:
            found, its = before.get(backend.name), own.get(backend.name, OwnChecks())
            # With others of its own what it has passed is something else: it begins anew, as with another way to it.
            if found is not None and found.route is route and found.own == its:
                found.backend = backend
                del before[backend.name]
            else:
                found = self._start(backend, route, its)
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

    def _start(self, backend: Backend, route: Route, own: OwnChecks) -> _Watched:
        settings = self.settings
        scraper = Scraper(settings.scrape.type if settings.scrape is not None else None)
        watched = _Watched(backend, route, scraper, own)
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
        self.not_made()
        if not self._without_room:
            self._without_room = True
            logger.error(
                "backends cannot be checked: this process has no descriptors or memory left for connections; what is known of them stays as it "
                "is. Let it have more descriptors (LimitNOFILE, ulimit -n)"
            )

    # --- what is asked: each returns the seconds from its beginning to the next ---

    async def _check_health(self, watched: _Watched, check: HealthCheck) -> float:
        answer: BackendAnswer | None = None
        wrong, late = "", False
        before, watched.health_asked = watched.health_asked, self._now()
        try:
            if check.type == "grpc":
                answer = await self._ask_grpc(watched.route, check)
            else:
                answer = await self._ask(
                    watched, check.path, timeout=check.timeout, most=MAX_BODY, port=check.port
                )
                wrong = _unexpected(answer, check.status)
                if wrong and answer.status == 404:
                    wrong += f": it has no `{check.path}`; set `path` to one that it has (Triton: /v2/health/ready)"
        except AskingError as error:
            wrong, late = str(error), isinstance(error, LateError)
        if wrong and answer is not None and self._is_busy(watched, answer, before):
            self._passes(watched, Check.HEALTH, answer)
            self._note(watched, Check.HEALTH.value, "")
            return check.interval
        up = not wrong or self._is_fault(watched, Check.HEALTH, answer)
        if watched.cold and up:
            await self._warm_up(watched)
        watched.cold = not up
        self._result(watched, Check.HEALTH, wrong, answer, late=late)
        return check.interval

    async def _ask_grpc(self, route: Route, check: HealthCheck) -> BackendAnswer:
        tls = None if route.tls is None else self.http2()
        return await check_grpc(route, check.service, timeout=check.timeout, port=check.port, tls=tls)

    async def _list_models(self, watched: _Watched, models: ModelList) -> float:
        answer: BackendAnswer | None = None
        wrong = ""
        try:
            answer = await self._ask(watched, models.path, timeout=models.timeout, most=MAX_LIST)
            wrong = _unexpected(answer, (200,))
            if not wrong:
                watched.listed = found = read_list(answer.body)
                watched.listed_at = self._now()
                self._tell_models(watched)
                wrong = _missing(watched.backend, found) if models.required else ""
        except (AskingError, MetricsError) as error:
            wrong = str(error)
        if models.required:
            self._result(watched, Check.MODELS, wrong, answer)
            return models.interval
        self._note(watched, "models", wrong)
        return models.interval if answer is None or answer.status != 404 else max(ABSENT, models.interval)

    async def _check_completion(self, watched: _Watched, check: CompletionCheck) -> float:
        answer: BackendAnswer | None = None
        wrong, model, late = "", "", False
        began, filled = self._now(), self._is_filled(watched)
        if watched.absent:  # what is told is believed for a while alone; and a model's time may be over
            self._tell_models(watched)
        try:
            if _path(watched, check) is None:
                await self._ask_for_nothing(watched, check)
            else:
                model = await self._model(watched, check)
                answer, wrong = await self._completed(watched, check, model)
        except _ListError as error:
            answer, wrong = error.answer, str(error)
        except LateError as error:
            if self._is_at_work(watched, began, filled=filled):
                return min(check.timeout, check.interval)
            wrong, late = str(error), True
        except (AskingError, MetricsError) as error:
            watched.quiet_since = None
            wrong = str(error)
        if answer is not None:
            watched.quiet_since = None
        if wrong and answer is not None and self._is_busy(watched, answer):
            # Nothing was completed: what it takes is not known by it.
            self._passes(watched, Check.COMPLETION, answer)
            self._note(watched, "completion", "")
            return check.interval
        if answer is not None and answer.status == 404 and names_model(answer.body, model):
            watched.absent[model] = self._now() + ABSENT_MODEL
            self._tell_models(watched)
            self._passes(watched, Check.COMPLETION, answer)  # it has answered, as a sound server does
            self._note(
                watched, "completion", f"status 404: it has no model `{model[:80]}`, which is not asked of it"
            )
            return check.interval
        if not wrong and watched.absent.pop(model, None) is not None:
            self._tell_models(watched)
        self._result(watched, Check.COMPLETION, wrong, answer, late=late)
        return min(check.timeout, check.interval) if wrong else check.interval

    def _is_busy(self, watched: _Watched, answer: BackendAnswer, since: float = inf) -> bool:
        """Whether a check was refused for want of room (law 7). `since`: from when on the model's answers to live requests count as a sign of life."""
        body = answer.body[:MOST_BYTES]
        if says_full(answer.status, body, retry_after=answer.retry_after):
            return self._has_requests(watched)
        return says_unwell(answer.status, body) and watched.route.work.heard >= since

    def _has_requests(self, watched: _Watched) -> bool:
        """Whether requests are known to be there: of this balancer, of others, or by what the server's own metrics say."""
        name = watched.backend.name
        if self.flights is not None and self.flights.of(name).known > 0:
            return True
        said = self.health.condition(name, self._now()).scraped
        return said is not None and said.running + said.waiting > 0

    def _is_filled(self, watched: _Watched) -> bool:
        """Whether requests of this process fill all slots that the file says."""
        slots = watched.backend.slots
        return bool(slots and self.flights and self.flights.of(watched.backend.name).requests >= slots)

    def _is_at_work(self, watched: _Watched, began: float, *, filled: bool) -> bool:
        """Whether a completion that ran out of time waits behind live requests (law 7)."""
        worked = watched.route.work.heard
        if worked >= began:
            watched.quiet_since = None
            return True
        slots = watched.backend.slots
        if not (filled and slots and self._is_filled(watched)) or self._stands_still(watched, began):
            watched.quiet_since = None
            return False
        if watched.quiet_since is None:
            watched.quiet_since = began
        return self._now() - max(watched.quiet_since, worked) < _QUIET / slots

    def _stands_still(self, watched: _Watched, began: float) -> bool:
        """Whether the server's own metrics say that its engine has done nothing since then, and were read in the later half of that time."""
        worked, read, now = watched.scraper.worked_at, watched.scraped_at, self._now()
        return (
            worked is not None and read is not None and worked < began and read - began >= (now - began) / 2
        )

    async def _completed(
        self, watched: _Watched, check: CompletionCheck, model: str
    ) -> tuple[BackendAnswer, str]:
        """Ask for a token: of a server that is not known yet, by each kind until one is answered. What is wrong with the first answer else."""
        first: tuple[BackendAnswer, str] | None = None
        for _ in PATHS:
            path = _path(watched, check) or ""
            answer = await self._complete(watched, path, model, check.timeout)
            wrong = _unexpected(answer, (200,)) or tokenless(answer)
            if answer.status not in _NOT_THERE or names_model(answer.body, model):
                return answer, wrong
            wrong += f": it does not take `{path}` with the model `{model[:80]}`; set `kind`, or `model`"
            first = first or (answer, wrong)
            finds_out = _kind(watched, check) is CompletionKind.AUTO and check.path is None
            if not finds_out or Check.COMPLETION.value in watched.passed:
                return answer, wrong
            watched.kind = (watched.kind + 1) % len(PATHS)
        assert first is not None  # noqa: S101 - there are kinds
        return first

    async def _ask_for_nothing(self, watched: _Watched, check: CompletionCheck) -> None:
        """Ask for any answer at all, where no other check asks for one."""
        if self.settings.health is None:
            await self._ask(watched, "/", timeout=check.timeout, most=MAX_BODY)

    async def _scrape(self, watched: _Watched, scrape: MetricsScrape) -> float:
        name = watched.backend.name
        if self.flights is not None:
            self.flights.asking(name)
        try:
            answer = await self._ask(
                watched, scrape.path, timeout=scrape.timeout, most=MAX_BYTES, port=scrape.port
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
        said = watched.own.model or check.model
        if said is not None:
            return said
        if watched.backend.models:
            return _first(watched.backend.models, watched.absent)
        if watched.listed is None or not watched.listed.models:
            path = (self.settings.models or ModelList()).path
            answer = await self._ask(watched, path, timeout=check.timeout, most=MAX_LIST)
            wrong = _unexpected(answer, (200,))
            if wrong:
                raise _ListError(
                    answer, f"`{path}`: {wrong}: it lists no model to complete with; set `model`"
                )
            watched.listed = read_list(answer.body)
            watched.listed_at = self._now()
            if not watched.listed.models:
                raise MetricsError("it lists no model to complete with; set `model`")
        return _first(watched.listed.models, watched.absent)

    async def _warm_up(self, watched: _Watched) -> None:
        """Let it generate some tokens, whatever comes of it."""
        check = self.settings.completion or CompletionCheck()
        path = _path(watched, check)
        if path is None:
            return
        for _ in range(self.settings.warm_up):
            try:
                await self._complete(watched, path, await self._model(watched, check), check.timeout)
            except (AskingError, NoRoomError, MetricsError, _ListError):
                return

    async def _complete(self, watched: _Watched, path: str, model: str, timeout: float) -> BackendAnswer:  # noqa: ASYNC109 - of `ask`
        wanted: dict[str, object] = {"model": model}
        if path.endswith("/embeddings"):
            wanted["input"] = "1"
        else:
            wanted |= {"max_tokens": 1, "temperature": 0}
            chat = path.endswith("/chat/completions")
            wanted |= {"messages": [{"role": "user", "content": "1"}]} if chat else {"prompt": "1"}
        content = msgspec.json.encode(wanted)
        return await self._ask(watched, path, timeout=timeout, most=MAX_BODY, content=content)

    async def _ask(
        self,
        watched: _Watched,
        path: str,
        *,
        timeout: float,  # noqa: ASYNC109 - of `ask`
        most: int,
        content: bytes | None = None,
        port: int | None = None,
    ) -> BackendAnswer:
        """Ask, with the key of the check, if it has one. A port of its own is another server's: it gets none.

        Raises:
            NoRoomError: see `ask`.
            AskingError: likewise; or the key cannot be read.
        """
        key = (watched.own.key or self.settings.key) if port is None else None
        try:
            shown = "" if key is None else key.read()
        except KeyReadError as error:
            raise AskingError(str(error)) from error
        return await ask(
            watched.route, path, timeout=timeout, most=most, content=content, port=port, key=shown
        )

    # --- what comes of it ---

    def _heard(self, name: str, load: BackendLoad, now: float) -> None:
        self.health.scraped(name, load, now)
        if self.flights is not None and load.running is not None and load.waiting is not None:
            self.flights.scraped(name, Scraped(load.running, load.waiting, now))
        if self.cached is not None and load.cache_tokens is not None:
            self.cached(name, load.cache_tokens)

    def _tell_models(self, watched: _Watched) -> None:
        """Say which models a backend has: those that it lists, or is for, but for those of which it has said that they are not there."""
        now, listed, name = self._now(), watched.listed, watched.backend.name
        watched.absent = {model: until for model, until in watched.absent.items() if until > now}
        if listed is not None:
            models = listed.models.difference(watched.absent)
            self.health.listed(name, models, listed.adapters, watched.listed_at)
        elif watched.backend.models:
            self.health.listed(name, watched.backend.models.difference(watched.absent), frozenset(), now)

    def _is_fault(self, watched: _Watched, check: Check, answer: BackendAnswer | None) -> bool:
        """Whether an answer says that the check is wrong, and nothing of the server (law 6)."""
        if answer is None:
            return False
        return answer.status in _KEYS or (answer.status in _NOT_THERE and check.value not in watched.passed)

    def _result(
        self,
        watched: _Watched,
        check: Check,
        wrong: str,
        answer: BackendAnswer | None = None,
        *,
        late: bool = False,
    ) -> None:
        """A check's result: `wrong` is empty if it passed; `late`: nothing at all was said in time."""
        if wrong and self._is_fault(watched, check, answer):
            self._passes(watched, check, answer)
            key = (
                "; give `checks` the server's `key`" if answer is not None and answer.status in _KEYS else ""
            )
            self._note(watched, check.value, f"the check is switched off here: {wrong}{key}")
        elif wrong:
            now = self._now()
            result = ProbeResult(False, now, wrong, _latency(answer))
            self.health.checked(watched.backend.name, check, result, now, late=late)
            self._note(watched, check.value, wrong)
        else:
            watched.passed.add(check.value)
            self._passes(watched, check, answer)
            self._note(watched, check.value, "")
        if self.health.pending:
            self.changed()

    def _passes(self, watched: _Watched, check: Check, answer: BackendAnswer | None) -> None:
        now = self._now()
        self.health.checked(watched.backend.name, check, ProbeResult(True, now, "", _latency(answer)), now)

    def _note(self, watched: _Watched, kind: str, wrong: str) -> None:
        """Log what is newly wrong, or right again."""
        before = watched.said.get(kind)
        watched.said[kind] = wrong
        if wrong and wrong != before:
            logger.warning("backend %s: %s: %s", watched.backend.name, kind, wrong)
        elif before and not wrong:
            logger.info("backend %s: %s is right again", watched.backend.name, kind)


def _latency(answer: BackendAnswer | None) -> float | None:
    """Milliseconds."""
    return None if answer is None else round(answer.seconds * 1000, 3)


def _first(models: Iterable[str], absent: Container[str]) -> str:
    """The first model that is there, as far as is known."""
    return min(models, key=lambda model: (model in absent, model))


def _kind(watched: _Watched, check: CompletionCheck) -> CompletionKind:
    return watched.own.kind or check.kind


def _path(watched: _Watched, check: CompletionCheck) -> str | None:
    """Where a backend is asked for a token; None: nowhere."""
    kind = _kind(watched, check)
    if kind is CompletionKind.NONE:
        return None
    if kind is CompletionKind.AUTO:
        return check.path or tuple(PATHS.values())[watched.kind]
    return check.path if check.path is not None and watched.own.kind is None else PATHS[kind]


def _unexpected(answer: BackendAnswer, expected: tuple[int, ...]) -> str:
    if answer.status in expected:
        return ""
    return f"status {answer.status}, expected {' or '.join(map(str, expected))}"


def _missing(backend: Backend, listed: Listed) -> str:
    """What a backend should list and does not."""
    names = listed.models | listed.adapters
    missing = sorted(name for name in backend.models if not named(name, names))
    if missing:
        return f"it does not list {', '.join(missing)[:200]}"
    return "" if names else "it lists no model"


class _Completion(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None


def tokenless(answer: BackendAnswer) -> str:
    """What is wrong with the answer to a completion, or to what else makes a model work."""
    try:
        found = msgspec.json.decode(shallow(answer.body), type=_Completion)
    except NestingError as error:
        return f"the completion is {error}"
    except ValueError:
        return "the answer is no completion"
    if found.choices is None and found.data is None:
        return "the answer is no completion"
    return "" if found.choices or found.data else "the completion has no choice"


def names_model(body: bytes, model: str) -> bool:
    """Whether an answer is an error that names the model: then that is not there, and not the path (OpenAI's and vLLM's form)."""
    if not model:
        return False
    try:
        found = msgspec.json.decode(shallow(body))
    except ValueError:
        return False
    error = found.get("error", found) if isinstance(found, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    return code == "model_not_found" or (isinstance(message, str) and model in message)
