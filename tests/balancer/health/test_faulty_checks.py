"""Checks that cannot work: they take no server down, say so, and find what they should once they can."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gtm.balancer import config
from gtm.balancer.health.check_settings import (
    CheckKey,
    CheckSettings,
    CompletionCheck,
    CompletionKind,
    HealthCheck,
    KeyReadError,
    ModelList,
    OwnChecks,
)
from gtm.balancer.health.checks import Checks, names_model
from gtm.balancer.plane.backend.backends import Route
from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.model.problems import PolicyError
from tests.balancer.health.world import run
from tests.patience import PATIENCE

CHECKS = CheckSettings(
    health=HealthCheck(interval=0.02),
    models=ModelList(interval=0.02),
    completion=CompletionCheck(interval=0.02, timeout=1.0),
    scrape=None,
)
SOUND = {
    "/health": (200, {}),
    "/v1/models": (200, {"data": [{"id": "llama"}]}),
    "/v1/completions": (200, {"choices": [{"text": "a"}]}),
}
NOT_FOUND = (404, {"detail": "Not Found"})
NO_SUPPORT = (400, {"error": {"message": "The model does not support Completions API", "code": 400}})


def _no_model(model: str) -> tuple[int, dict[str, object]]:
    message = f"The model `{model}` does not exist."
    return 404, {"error": {"message": message, "type": "NotFoundError", "param": "model", "code": 404}}


@dataclass
class Server:
    """A model server that says by path what it is told to, to whoever has its key."""

    says: dict[str, tuple[int, object]] = field(default_factory=dict)
    key: str = ""
    heads: list[str] = field(default_factory=list)
    asked: list[tuple[str, object]] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = head.split(" ")[1]
        length = next(
            (int(line[15:]) for line in head.lower().split("\r\n") if line[:15] == "content-length:"), 0
        )
        body = json.loads(await reader.readexactly(length)) if length else None
        self.asked.append((path, body))
        known = not self.key or path == "/health" or f"authorization: Bearer {self.key}\r\n" in head
        status, said = self.says.get(path, NOT_FOUND) if known else (401, {"error": "Unauthorized"})
        text = json.dumps(said).encode()
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text))
        writer.close()


class Telling(BackendHealth):
    """Counts how often it is told which models a server has."""

    told = 0

    def listed(self, name: str, models: frozenset[str], adapters: frozenset[str], now: float) -> None:
        self.told += 1
        super().listed(name, models, adapters, now)


@dataclass
class Here:
    """A server and what its checks have found."""

    server: Server
    health: Telling
    checks: Checks
    name: str

    def condition(self) -> Condition:
        now = asyncio.get_running_loop().time()
        self.health.tick(now)
        return self.health.condition(self.name, now)

    def problems(self) -> dict[str, str]:
        return self.checks.problems()[self.name]

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - it changes in many places
                await asyncio.sleep(0.005)


@asynccontextmanager
async def _checked(
    server: Server,
    settings: CheckSettings = CHECKS,
    own: OwnChecks | None = None,
    models: frozenset[str] = frozenset(),
) -> AsyncGenerator[Here]:
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    backend = Backend(url, models=models)
    known = HealthSettings(checks=settings.thresholds())
    health = Telling(known, [backend], asyncio.get_running_loop().time())
    checks = Checks(settings, health, lambda: None)
    checks.update([(backend, Route(url))], {} if own is None else {url: own})
    try:
        assert await checks.first_round(PATIENCE)
        yield Here(server, health, checks, url)
    finally:
        await checks.stop()
        listening.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
@pytest.mark.parametrize("path", ["/health", "/v1/completions"])
def test_a_check_that_cannot_work_takes_nobody_down(path: str, status: int) -> None:
    """The server answers, and counts as it does without the check; what is wrong is told (vllm-project/router#159, vllm-project/production-stack#631)."""

    async def test() -> None:
        async with _checked(Server({**SOUND, path: (status, {"error": "no"})})) as here:
            await here.until(here.problems)
            assert here.condition().healthy
            (words,) = here.problems().values()
            assert words.startswith(f"the check is switched off here: status {status}, expected 200")
            assert ("`key`" in words) == (status in (401, 403))
            here.server.says = dict(SOUND)  # it is tried again
            await here.until(lambda: not here.problems())

    run(test)


def test_a_token_that_is_too_few_takes_nobody_down() -> None:
    """A reasoning model cannot answer with one token, and says 400 (BerriAI/litellm#26987)."""

    async def test() -> None:
        error = {
            "message": "Could not finish the message because max_tokens or model output limit was reached"
        }
        says = {**SOUND, "/v1/completions": NOT_FOUND, "/v1/chat/completions": (400, {"error": error})}
        async with _checked(Server(says)) as here:
            await here.until(here.problems)
            assert here.condition().healthy

    run(test)


@pytest.mark.parametrize("status", [404, 500, 503])
def test_what_has_passed_and_fails_is_down(status: int) -> None:
    """Another server stands there now, or this one is broken."""

    async def test() -> None:
        async with _checked(Server(dict(SOUND))) as here:
            assert here.condition().healthy
            here.server.says["/health"] = (status, {})
            await here.until(lambda: not here.condition().healthy)
            assert f"status {status}" in here.problems()["health"]

    run(test)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_that_fails_from_the_first_check_on_is_down(status: int) -> None:
    """That is no fault of the check."""

    async def test() -> None:
        async with _checked(Server({**SOUND, "/v1/completions": (status, {})})) as here:
            assert not here.condition().healthy

    run(test)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", {"choices": [{}]}), ("/v1/embeddings", {"data": [{"embedding": [0.1]}]})],
)
def test_a_server_is_asked_for_what_it_does(path: str, body: dict[str, object]) -> None:
    """A chat, or an embedding, where it completes nothing; and then a dead engine shows as anywhere (BerriAI/litellm#1202: embedding servers that were checked by chats)."""

    async def test() -> None:
        says = {**SOUND, "/v1/completions": NO_SUPPORT, path: (200, body)}
        async with _checked(Server(says)) as here:
            assert here.condition().healthy
            assert here.problems() == {}
            here.server.says[path] = (500, {})
            await here.until(lambda: not here.condition().healthy)

    run(test)


def test_a_kind_may_be_said_and_no_other_is_tried() -> None:
    """By the file for all, or of one backend; `none` asks for nothing."""

    async def test() -> None:
        for own, asked in (
            (OwnChecks(kind=CompletionKind.CHAT, model="x"), {"/v1/chat/completions"}),
            (OwnChecks(kind=CompletionKind.NONE), set()),
        ):
            async with _checked(Server(dict(SOUND)), own=own) as here:
                assert here.condition().healthy
                posts = {(path, body["model"]) for path, body in here.server.asked if isinstance(body, dict)}
                assert posts == {(path, "x") for path in asked}

    run(test)


def test_where_no_check_is_left_the_server_is_seen_to_be_there() -> None:
    """`none`, and no health path: something must answer still."""

    async def test() -> None:
        settings = CheckSettings(health=None, models=None, completion=CHECKS.completion, scrape=None)
        async with _checked(Server(), settings, OwnChecks(kind=CompletionKind.NONE)) as here:
            assert here.condition().healthy
        gone = settings.model_copy(update={"completion": CompletionCheck(interval=0.02, timeout=0.2)})
        async with _checked(Server(), gone, OwnChecks(kind=CompletionKind.NONE)) as here:
            route = Route("http://127.0.0.1:1")
            backend = Backend(route.url)
            here.health.update(HealthSettings(checks=gone.thresholds()), [backend])
            here.checks.update([(backend, route)], {route.url: OwnChecks(kind=CompletionKind.NONE)})
            here.name = route.url
            await here.until(here.problems)
            assert not here.condition().healthy

    run(test)


def test_a_model_that_a_server_denies_is_not_asked_of_it() -> None:
    """404 for one model says nothing of the others: the server stays, the model goes."""

    async def test() -> None:
        says = {**SOUND, "/v1/models": (200, {"data": [{"id": "llama"}, {"id": "qwen"}]})}
        says["/v1/completions"] = _no_model("llama")
        async with _checked(Server(says)) as here:
            await here.until(lambda: here.condition().models == frozenset(("qwen",)))
            assert here.condition().healthy
            await here.until(
                lambda: "qwen" in [b["model"] for _, b in here.server.asked if isinstance(b, dict)]
            )

    run(test)


def test_a_model_of_the_file_that_a_server_denies() -> None:
    """Where nothing is listed, too; and it is there again when it completes."""

    async def test() -> None:
        says = {"/health": (200, {}), "/v1/completions": _no_model("llama")}
        settings = CHECKS.model_copy(update={"models": None})
        async with _checked(Server(says), settings, models=frozenset(("llama",))) as here:
            await here.until(lambda: here.condition().models == frozenset())
            assert here.condition().healthy
            assert "no model `llama`" in here.problems()["completion"]
            here.server.says["/v1/completions"] = SOUND["/v1/completions"]
            await here.until(lambda: here.condition().models == frozenset(("llama",)))

    run(test)


def test_a_model_that_is_not_there_is_told_as_long_as_that_counts() -> None:
    """Health believes a list for a while alone; the others complete meanwhile."""

    async def test() -> None:
        says = {"/health": (200, {}), "/v1/completions": _no_model("llama")}
        models = frozenset(("llama", "qwen"))
        async with _checked(Server(says), CHECKS.model_copy(update={"models": None}), models=models) as here:
            here.server.says["/v1/completions"] = SOUND["/v1/completions"]
            await here.until(lambda: not here.problems())
            told = here.health.told
            await here.until(lambda: here.health.told > told + 1)
            assert here.condition().models == frozenset(("qwen",))

    run(test)


def test_what_was_passed_with_other_settings_says_nothing_of_these() -> None:
    """The file gives a backend another kind, which it does not take: a wrong check again, and no server that broke."""

    async def test() -> None:
        async with _checked(Server(dict(SOUND))) as here:
            route, backend = Route(here.name), Backend(here.name)
            here.checks.update([(backend, route)])
            here.server.asked.clear()
            await here.until(lambda: [path for path, _ in here.server.asked].count("/v1/completions") > 1)
            here.checks.update([(backend, route)], {here.name: OwnChecks(kind=CompletionKind.CHAT)})
            await here.until(here.problems)
            assert here.problems()["completion"].startswith("the check is switched off here: status 404")
            assert here.condition().healthy

    run(test)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"error": {"message": "The model `llama` does not exist.", "code": 404}}', True),
        (b'{"object": "error", "message": "The model `llama` does not exist.", "code": 404}', True),
        (b'{"error": {"message": "no such model", "code": "model_not_found"}}', True),
        (b'{"error": "model \\"llama\\" not found, try pulling it first"}', True),
        (b'{"error": {"message": "model llama not found"}}', True),
        (b'{"detail": "Not Found"}', False),
        (b"404 page not found", False),
        (b"[1]", False),
        (b"", False),
        (b"[" * 9000, False),
    ],
)
def test_which_404_is_of_a_model(body: bytes, named: bool) -> None:
    """By the forms of OpenAI, vLLM and Ollama; a path that is not there names none."""
    assert names_model(body, "llama") is named


# --- keys ---


def test_a_key_is_shown_to_the_server_and_to_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, read each time, or from the environment; a backend's own goes first; no log has it."""
    file = tmp_path / "key"
    file.write_text("sk-first\n")
    monkeypatch.setenv("GTM_TEST_CHECK_KEY", "sk-env")

    async def test() -> None:
        settings = CHECKS.model_copy(update={"key": CheckKey(file=file)})
        async with _checked(Server(dict(SOUND), "sk-first"), settings) as here:
            assert here.condition().healthy
            assert here.problems() == {}
            here.server.key = "sk-second"
            await here.until(lambda: "completion" in here.problems())
            assert here.condition().healthy
            file.write_text("sk-second")
            await here.until(lambda: not here.problems())
        own = OwnChecks(key=CheckKey(env="GTM_TEST_CHECK_KEY"))
        async with _checked(Server(dict(SOUND), "sk-env"), settings, own) as here:
            assert here.problems() == {}
        async with _checked(Server(dict(SOUND), "sk-first")) as here:
            await here.until(lambda: {"models", "completion"} <= here.problems().keys())
            assert here.condition().healthy
            assert not any("authorization" in head for head in here.server.heads)

    with caplog.at_level(logging.DEBUG):
        run(test)
    assert "sk-" not in caplog.text


@pytest.mark.parametrize("text", ["", " \n", "two words", "a\tb", "ключ", "x" * 5000, "a\r\nx: y"])
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    """It never goes into a head; the error says where it stands, and not what it is."""
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(KeyReadError) as error:
        CheckKey(file=file).read()
    assert str(file) in str(error.value)
    assert not text.strip() or text.strip() not in str(error.value)


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A server with one is not asked without; nothing is known of it then."""

    async def test() -> None:
        settings = CHECKS.model_copy(update={"key": CheckKey(file=tmp_path / "none")})
        async with _checked(Server(dict(SOUND), "sk"), settings) as here:
            await here.until(lambda: "health" in here.problems())
            assert "cannot be read: No such file" in here.problems()["health"]

    run(test)


def test_where_keys_stand_in_the_file(tmp_path: Path) -> None:
    """Names of files are relative to the balancer's file; exactly one of both is said."""
    path = tmp_path / "balancer.yaml"
    path.write_text(
        "backends:\n- {url: 'http://127.0.0.1:1', checks: {key: {file: a/key}, kind: chat, model: m}}\n"
        "checks: {key: {env: KEY}, completion: {kind: embedding}}\n"
    )
    found = config.load(path)
    assert found.checks.key == CheckKey(env="KEY")
    assert found.backends[0].checks == OwnChecks(
        key=CheckKey(file=tmp_path / "a/key"), kind=CompletionKind.CHAT, model="m"
    )
    for wrong in ("{}", "{file: a, env: B}", "{env: 'a b'}"):
        path.write_text(f"backends: [{{url: 'http://127.0.0.1:1'}}]\nchecks: {{key: {wrong}}}\n")
        with pytest.raises(PolicyError, match="key"):
            config.load(path)


def test_models_that_a_server_lists_may_be_compared() -> None:
    """They are a value, as those that a file says are: choosing keeps sets of them (a difference with a dict's keys would be none)."""

    async def main() -> None:
        async with _checked(Server(dict(SOUND))) as here:
            await here.until(lambda: here.condition().models)
            assert {here.condition().models} == {frozenset({"llama"})}

    run(main)
