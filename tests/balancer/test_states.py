"""What one server keeps, and requests that go on with it: they come to that server, or it is said that they cannot (docs/balancer.md#what-one-server-keeps).

volcano-sh/kthena#1732 and higress-group/higress#3841 tell of follow-ups that other servers did not know.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any
from urllib.parse import unquote

import pytest

from gtm.balancer.decide.picking import MOST_HELD, Holders
from gtm.balancer.plane.proxy import MOST_SOUGHT
from gtm.balancer.wire.endpoints import (
    ENDPOINTS,
    IdFinder,
    RequestTarget,
    body_kind,
    makes_state,
    named_in,
    runs_model,
    target_of,
)
from gtm.balancer.wire.usage import makes_text
from gtm.core.balance.work import AskedWork
from tests.balancer.test_full import Region, region
from tests.balancer.world import Message, Peer, read_body, read_head, run
from tests.patience import PATIENCE


class Keeper:
    """A server that keeps what it makes, and knows nothing else."""

    def __init__(self, name: str, absent: int = 404, *, stream: bool = False) -> None:
        self.name, self.absent, self.stream = name, absent, stream
        self.made: set[str] = set()
        self.asked: list[bytes] = []
        self.draw = random.Random(name)

    def finish(self) -> None:
        """Nothing runs."""

    async def __call__(self, peer: Peer) -> None:
        while True:
            message = await read_body(peer.reader, await read_head(peer.reader))
            self.asked.append(message.start)
            peer.send(self._answer(message))

    def _answer(self, message: Message) -> bytes:
        path = unquote(message.start.decode().split(" ")[1]).rstrip("/")
        said: Any = json.loads(message.body) if message.body else {}
        known = said.get("previous_response_id") or said.get("input_file_id") or said.get("conversation")
        known = known["id"] if isinstance(known, dict) else known
        parts = path.split("/")
        known = known or (parts[3] if len(parts) > 3 else None)
        if known is not None and known not in self.made:
            return _said(self.absent, {"error": {"message": f"`{known}` not found", "code": self.absent}})
        if len(parts) > 3:
            return _said(200, {"id": known, "by": self.name})
        thing = f"{parts[2]}_{self.draw.randrange(10**9)}"
        self.made.add(thing)
        if self.stream:
            event = json.dumps(
                {"type": "response.created", "response": {"id": thing, "by": self.name}}
            ).encode()
            event = b"data: %b\n\n" % event
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)
        return _said(200, {"id": thing, "by": self.name})


def _said(status: int, document: object) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def _request(method: str, path: str, document: object = None) -> bytes:
    body = b"" if document is None else json.dumps(document).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _ask(here: Region, method: str, path: str, document: object = None) -> tuple[int, Any]:
    answer = await here.ask(_request(method, path, document))
    text = answer.body.removeprefix(b"data: ")
    found = json.loads(text)
    return answer.status, found.get("response", found)


@pytest.mark.parametrize("stream", [False, True])
def test_a_follow_up_comes_to_the_server_that_has_the_response(*, stream: bool) -> None:
    """Of a whole chain, and for whatever is asked of it; whether it was streamed or not."""

    async def main() -> None:
        servers = [Keeper(name, stream=stream) for name in "abc"]
        async with region(*servers) as here:  # type: ignore[arg-type]
            homes = set()
            for _ in range(12):
                status, first = await _ask(here, "POST", "/v1/responses", {"model": "m", "input": "1"})
                homes.add(first["by"])
                last = first
                for _ in range(3):
                    wanted = {"model": "m", "input": "2", "previous_response_id": last["id"]}
                    status, last = await _ask(here, "POST", "/v1/responses", wanted)
                    assert (status, last["by"]) == (200, first["by"])
                for method, path in (
                    ("GET", ""),
                    ("GET", "/input_items"),
                    ("POST", "/cancel"),
                    ("DELETE", ""),
                ):
                    status, found = await _ask(here, method, f"/v1/responses/{first['id']}{path}")
                    assert (status, found["by"]) == (200, first["by"])
            assert len(homes) > 1  # they are shared out as ever
            assert sum(len(one.asked) for one in servers) == 12 * 8  # nobody was asked in vain

    run(main)


@pytest.mark.parametrize("size", [100_000, 1_300_000])
def test_long_follow_ups_come_to_the_server_that_has_what_they_go_on_with(size: int) -> None:
    """With a picture in them, whether the id stands before it or behind it: beyond 1 MiB, or without sessions beyond 64 KiB, half of them were told that it is not found."""

    async def main() -> None:
        servers = [Keeper(name) for name in "abc"]
        async with region(*servers) as here:  # type: ignore[arg-type]
            for _ in range(4):
                _, first = await _ask(here, "POST", "/v1/responses", {"model": "m", "input": "1"})
                for name, thing in (
                    ("previous_response_id", first["id"]),
                    ("conversation", first["id"]),
                    ("conversation", {"id": first["id"]}),
                ):
                    for wanted in ({name: thing, "input": "x" * size}, {"input": "x" * size, name: thing}):
                        status, last = await _ask(here, "POST", "/v1/responses", wanted)
                        assert (status, last["by"]) == (200, first["by"])

    run(main)


@pytest.mark.parametrize("absent", [404, 400])
def test_what_nobody_saw_being_made_is_found_by_asking(absent: int) -> None:
    """As after a restart, or by another worker: each is asked until one has it, which is then known; that none is full, or at fault, by this is seen to."""

    async def main() -> None:
        servers = [Keeper(name, absent) for name in "abcd"]
        servers[2].made = {"resp_old", "file_old", "conv_old"}
        async with region(*servers) as here:  # type: ignore[arg-type]
            for document in (
                {"model": "m", "input": "1", "previous_response_id": "resp_old"},
                {"model": "m", "input": "1", "conversation": "conv_old"},
                {"model": "m", "input": "1", "conversation": {"id": "conv_old"}},
            ):
                status, found = await _ask(here, "POST", "/v1/responses", document)
                assert (status, found["by"]) == (200, "c")
            assert (await _ask(here, "GET", "/v1/files/file_old"))[0] == 200
            asked = [len(one.asked) for one in servers]
            assert (await _ask(here, "GET", "/v1/files/file_old"))[0] == 200
            assert [len(one.asked) for one in servers] == [asked[0], asked[1], asked[2] + 1, asked[3]]
            status, said = await _ask(here, "GET", "/v1/responses/nowhere")
            assert (status, said["error"]["code"]) == (absent if absent == 404 else 400, absent)
            assert all(b"nowhere" in one.asked[-1] for one in servers)
            assert not here.proxy.stats.full
            assert not here.proxy.stats.retries
            assert not sum(one.ejections for one in here.health.snapshot(asyncio.get_running_loop().time()))

    run(main)


@pytest.mark.parametrize("size", [100_000, 1_300_000])
@pytest.mark.parametrize("stands", ["first", "last"])
def test_a_long_follow_up_of_what_nobody_saw_being_made_is_found_by_asking(size: int, stands: str) -> None:
    """As after a restart, or by another worker: its body is kept until one has what it goes on with, and comes whole."""

    async def main() -> None:
        servers = [Keeper(name) for name in "abcd"]
        servers[2].made = {f"{name}_{number}" for name in ("resp", "conv") for number in range(4)}
        async with region(*servers) as here:  # type: ignore[arg-type]
            for number in range(4):
                for name, thing in (
                    ("previous_response_id", f"resp_{number}"),
                    ("conversation", {"id": f"conv_{number}"}),
                ):
                    long, told = {"input": "x" * size}, {name: thing}
                    wanted = {**told, **long} if stands == "first" else {**long, **told}
                    status, found = await _ask(here, "POST", "/v1/responses", wanted)
                    assert (status, found["by"]) == (200, "c")
            assert max(len(one.asked) for one in servers) == 8

    run(main)


@pytest.mark.parametrize("path", ["/v1/responses/", "/v1/%72esponses", "/v1/%72esponses//"])
def test_a_path_that_servers_take_for_another_is_that_one(path: str) -> None:
    """A slash at its end, or a letter that is encoded: where `paths` lets it pass."""

    async def main() -> None:
        servers = [Keeper(name) for name in "abc"]
        async with region(*servers) as here:  # type: ignore[arg-type]
            for _ in range(6):
                status, first = await _ask(here, "POST", path, {"model": "m", "input": "1"})
                assert status == 200
                assert here.picker.holders.of(first["id"]) is not None
                wanted = {"input": "x" * 100_000, "previous_response_id": first["id"]}
                status, last = await _ask(here, "POST", path, wanted)
                assert (status, last["by"]) == (200, first["by"])

    run(main)


def test_a_response_in_the_background_is_work_after_its_answer() -> None:
    """It counts at its server for as long as it is expected to take, and that it is answered at once teaches nothing of others."""

    async def main() -> None:
        servers = [Keeper(name) for name in "ab"]
        async with region(*servers) as here:  # type: ignore[arg-type]
            wanted = {"model": "m", "input": "1", "background": True}
            costs = here.picker.costs
            for _ in range(60):
                costs.learn(AskedWork("m", 0, None), 60.0)
            before = costs.mean
            for _ in range(6):
                assert (await _ask(here, "POST", "/v1/responses", wanted))[0] == 200
            flights = [one.flight for one in here.picker.pool.candidates]
            assert [flight.requests for flight in flights] == [3, 3]
            assert costs.mean == before
            assert all(flight.latency.value is None for flight in flights)
            assert not here.queue.admission.running
            # One that is streamed is answered when it is done; one that is refused is no work.
            assert (await _ask(here, "POST", "/v1/responses", {**wanted, "stream": True}))[0] == 200
            unknown = {**wanted, "previous_response_id": "nowhere"}
            assert (await _ask(here, "POST", "/v1/responses", unknown))[0] == 404
            assert sum(flight.requests for flight in flights) == 6
            for _ in range(2000):  # such requests take a moment now: they are work for a moment
                costs.learn(AskedWork("m", 0, None), 0.001)
            assert (await _ask(here, "POST", "/v1/responses", wanted))[0] == 200
            async with asyncio.timeout(PATIENCE):
                while sum(flight.requests for flight in flights) > 6:  # noqa: ASYNC110 - it ends by time alone
                    await asyncio.sleep(0.001)

    run(main)


def test_who_makes_ids_up_has_a_bound() -> None:
    """So many servers are asked for one, however many there are."""

    async def main() -> None:
        servers = [Keeper(str(number)) for number in range(MOST_SOUGHT + 4)]
        async with region(*servers) as here:  # type: ignore[arg-type]
            assert (await _ask(here, "GET", "/v1/responses/nowhere"))[0] == 404
            assert sum(len(one.asked) for one in servers) == MOST_SOUGHT

    run(main)


def test_where_the_server_is_gone_that_is_said() -> None:
    """Out of the file: 404, begin anew. Down: 503, and nobody else is asked."""

    async def main() -> None:
        servers = [Keeper(name) for name in "ab"]
        async with region(*servers) as here:  # type: ignore[arg-type]
            _, made = await _ask(here, "POST", "/v1/responses", {"model": "m", "input": "1"})
            home = here.picker.holders.of(made["id"])
            assert home is not None
            index = "ab".index(made["by"])
            found = {one.backend.name: one.condition for one in here.picker.pool.candidates}
            here.picker.conditions({home: type(found[home])(healthy=False)})
            asked = len(servers[1 - index].asked)
            answer = await here.ask(_request("GET", f"/v1/responses/{made['id']}"))
            assert answer.status == 503
            assert b"state_unreachable" in answer.body
            backends = [one.backend for one in here.picker.pool.candidates if one.backend.name != home]
            more = type(backends[0])("http://127.0.0.1:1")
            here.picker.configure([*backends, more], here.picker.pool.settings)
            answer = await here.ask(_request("GET", f"/v1/responses/{made['id']}"))
            assert answer.status == 404
            assert b"state_gone" in answer.body
            assert len(servers[1 - index].asked) == asked

    run(main)


def test_which_requests_make_or_name_something() -> None:
    """Lists name nothing, and what is made anew has no id yet."""
    assert makes_state(b"POST", b"/v1/responses")
    assert makes_state(b"POST", b"/v1/files")
    assert not makes_state(b"GET", b"/v1/files")
    assert not makes_state(b"POST", b"/v1/responses/x/cancel")
    assert not makes_state(b"POST", b"/v1/chat/completions")
    assert named_in(b"/v1/responses/resp_1/input_items?limit=1") == "resp_1"
    assert named_in(b"/v1/files/f-1?x") == "f-1"
    assert named_in(b"/v1/chat/completions/c1") == "c1"
    for path in (
        b"/v1/files",
        b"/v1/files?purpose=batch",
        b"/v1/responses/",
        b"/v1/chat/completions",
        b"/v1/threads/runs",
    ):
        assert named_in(path) is None
    assert named_in(b"/v1/files/" + b"x" * 300) is None


_WORKS = {b"/v1/chat/completions", b"/v1/embeddings", b"/v1/messages", b"/v1/responses"}
_NONE = {b"/v1/messages/count_tokens", b"/tokenize", b"/v1/models"}
"""Paths whose answers take a model's work, and some that take none: a server whose model hangs gives these, too."""


@pytest.mark.parametrize("query", [b"", b"?", b"?model=m", b"?a=" + b"x" * 300])
def test_what_is_remembered_of_targets_is_what_they_say(query: bytes) -> None:
    """By method and target, and nothing else: asked in any order, and again."""
    targets = [one.path.replace("*", "thing").encode() + query for one in ENDPOINTS]
    draw = random.Random(len(query))
    for _ in range(2 * len(targets)):
        target = draw.choice(targets)
        path = target.partition(b"?")[0]
        for method in (b"POST", b"GET", b"DELETE"):
            assert target_of(method, target) == RequestTarget(
                path,
                body_kind(method, path),
                makes_text(method, path),
                makes_state(method, path),
                named_in(target),
                method == b"POST" and path in _WORKS if path in _WORKS | _NONE else runs_model(method, path),
                continues=method == b"POST" and path == b"/v1/responses",
            )
    assert target_of(b"POST", b"/v1/batches").continues


def test_ids_are_found_however_they_are_cut_and_by_nothing_that_a_model_writes() -> None:
    """Quotes in a text are escaped."""
    text = b'HTTP/1.1 200 OK\r\n\r\n{"output": [{"text": "\\"id\\": \\"evil\\""}], "id" : "resp_1", "x": {"id": "no"}}'
    for at in range(len(text)):
        finder = IdFinder()
        finder.piece(text[:at])
        finder.piece(text[at:])
        assert finder.id == "resp_1"


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    """Who has something keeps it, whoever else says so."""
    holders = Holders()
    holders.learn("a", "one")
    holders.learn("a", "two")
    assert holders.of("a") == "one"
    holders.learn("b", "one")
    assert holders.of("a") == "one"
    for number in range(MOST_HELD - 1):
        holders.learn(str(number), "x")
    assert (holders.of("a"), holders.of("b")) == ("one", None)
