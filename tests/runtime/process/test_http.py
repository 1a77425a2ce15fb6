"""Requests that are too large, or never end; servers that end."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gtm.http.problems import Response, response_of
from gtm.runtime.process.http import Direct, DirectProtocol, PatientProtocol, PatientServer
from tests.effort import examples


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Say ok, much, or the length of the body and the number of headers to those who POST."""
    reply = bytes(32 * 1024 * 1024) if scope["path"] == "/much" else b"ok"
    if scope["method"] == "POST" and scope["path"] != "/early":
        length = 0
        while (message := await receive())["type"] == "http.request":
            length += len(message["body"])
            if not message["more_body"]:
                break
        reply = b"%d %d" % (length, len(scope["headers"]))
    headers = [(b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


def answer_head(method: str, target: bytes, *_: object) -> Response | None:
    """The same in place, but for what is much."""
    if target.startswith(b"/much"):
        return None
    assert method in ("GET", "HEAD")
    return response_of(200, (), b"ok")


class _Hasty(PatientProtocol):
    head_timeout = 0.2
    body_timeout = 0.2
    linger = 0.2


class _HastyDirect(DirectProtocol, _Hasty):
    pass


Make = Callable[..., PatientProtocol]

BOTH = pytest.mark.parametrize("make", [PatientProtocol, Direct(answer_head)], ids=["asgi", "in place"])


@pytest.fixture(params=[_Hasty, Direct(answer_head, _HastyDirect)], ids=["asgi", "in place"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Where a server with little patience listens."""
    with serving(request.param) as found:
        yield found


@pytest.fixture(scope="module", params=[PatientProtocol, Direct(answer_head)], ids=["asgi", "in place"])
def patient(request: pytest.FixtureRequest) -> Iterator[int]:
    """Where a server with the patience of the real one listens."""
    with serving(request.param) as found:
        yield found


@contextmanager
def serving(make: Make, keep_alive: float = 60) -> Iterator[int]:
    """A server with a protocol; its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=make, lifespan="off", log_config=None)  # type: ignore[arg-type]
    config.timeout_keep_alive = keep_alive  # type: ignore[assignment]
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def exchange(port: int, *pieces: bytes) -> bytes:
    """All that a server says to some bytes, until it closes the connection or one answer is whole."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        heard = b""
        with suppress(ConnectionError):
            while not heard.endswith((b"ok", b"}")) and (part := connection.recv(65536)):
                heard += part
    return heard


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """What a connection gives up to some bytes: head and body of an answer may come apart."""
    heard = b""
    while not heard.endswith(end):
        part = connection.recv(65536)
        assert part, heard
        heard += part
    return heard


def status(reply: bytes) -> int:
    """The status of the last answer."""
    return int(reply[reply.rindex(b"HTTP/1.1 ") :][9:12])


@example(33_000, [], 103, [20_000])
@given(
    target=st.integers(1, 33_000) | st.integers(32_700, 32_800) | st.just(1),
    lines=st.lists(st.integers(1, 400) | st.integers(8_000, 20_000), max_size=6),
    more=st.integers(0, 103),
    cuts=st.lists(st.integers(1, 40_000), max_size=5),
)
@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_heads_of_32_kib_and_100_lines_are_read_and_no_others(
    patient: int, target: int, lines: list[int], more: int, cuts: list[int]
) -> None:
    """However they are cut: 431 for too many bytes or lines, 414 where the target alone is longer (RFC 6585 §5)."""
    headers = [b"Host: a", *(b"X: " + b"v" * size for size in lines), *(b"Y: z" for _ in range(more))]
    head = b"GET /%b HTTP/1.1\r\n%b\r\n\r\n" % (b"t" * target, b"\r\n".join(headers))
    edges = [0, *sorted({cut for cut in cuts if cut < len(head)}), len(head)]
    reply = exchange(patient, *(head[start:end] for start, end in itertools.pairwise(edges)))
    fits = len(head) <= 32 * 1024 and len(headers) <= 100
    assert status(reply) == (200 if fits else 414 if target + 1 > 32 * 1024 else 431), reply[:300]


def test_a_head_without_end_is_refused_before_it_is_kept(patient: int) -> None:
    """One header of megabytes gets its 431 after a few pieces, as a problem document, and the connection ends."""
    with socket.create_connection(("127.0.0.1", patient), timeout=30) as connection:
        connection.sendall(HEAD + b"X: ")
        with suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(b"v" * 65536)
        reply = b""
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                reply += part
    assert status(reply) == 431
    assert b"connection: close" in reply
    assert b'"urn:gtm:problem:request-header-fields-too-large"' in reply
    assert b'"code": "request_header_fields_too_large"' in reply


@pytest.mark.parametrize(
    "head",
    [HEAD + b"X: ", HEAD, b"GET /"],
)
def test_heads_that_do_not_arrive_end_the_connection(port: int, head: bytes) -> None:
    """Half a head is told so, and the connection does not stay."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head)
        reply = connection.makefile("rb").read()
    assert status(reply) == 408
    assert b"head took longer than 0.2 s" in reply


@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n"])
def test_connections_on_which_nothing_is_asked_end_without_a_word(port: int, sent: bytes) -> None:
    """An answer to no question could be taken for that to the next one."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_blank_lines_after_an_answer_keep_no_connection(port: int) -> None:
    """They are nobody's request, and end like one that does not arrive."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(HEAD + b"\r\n")
        read_until(connection, b"ok")
        connection.sendall(b"\r\n")
        assert connection.recv(1000) == b""


@pytest.mark.parametrize(
    "body", [b"Content-Length: 10\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"]
)
def test_bodies_that_do_not_arrive_end_the_connection(port: int, body: bytes) -> None:
    """The application waits no longer, and the client is told."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n" + body)
        reply = connection.makefile("rb").read()
    assert status(reply) == 408
    assert reply.count(b"HTTP/1.1") == 1


def test_what_still_comes_of_an_answered_body_ends(port: int) -> None:
    """A client that goes on with a body that nobody reads does not keep its connection by that."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        heard = b""
        with suppress(ConnectionError):
            while True:
                connection.sendall(b"b" * 1000)
                connection.settimeout(0.01)
                with suppress(TimeoutError):
                    part = connection.recv(1000)
                    heard += part
                    if not part:
                        break
    assert heard.endswith(b"ok")


def test_an_answered_body_that_ends_leaves_a_connection_for_the_next_request(patient: int) -> None:
    """And one that idles then has its deadline again."""
    connection = http.client.HTTPConnection("127.0.0.1", patient, timeout=30)
    connection.putrequest("POST", "/early")
    connection.putheader("Content-Length", "4")
    connection.endheaders()
    assert connection.getresponse().read() == b"ok"
    kept = connection.sock
    assert kept is not None
    kept.sendall(b"body")
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"
    assert connection.sock is kept
    connection.close()


@pytest.mark.parametrize(
    "rest",
    [
        b"".join(b"1;%b\r\na\r\n" % (b"e" * 15_000) for _ in range(40)),
        b"1;" + b"e" * 200_000,
        b"1\r\na\r\n0\r\nT: " + b"t" * 200_000,
        b"1\r\na\r\n0\r\n" + b"T: t\r\n" * 20_000,
        b"186a0\r\n" + b"a" * 100_000 + b"\r\n0\r\nT: " + b"t" * 200_000,
        b"186a0\r\n" + b"a" * 100_000 + b"\r\n0\r\n" + b"T: t\r\n" * 20_000,
    ],
    ids=[
        "extensions",
        "extension",
        "trailer",
        "trailers",
        "trailer of a long body",
        "trailers of a long body",
    ],
)
def test_the_frame_of_a_body_is_bounded(patient: int, rest: bytes) -> None:
    """Extensions of chunks and trailers without end, with a byte of body between them: 400."""
    assert status(exchange(patient, CHUNKED, rest)) == 400


def test_bodies_in_tiny_chunks_are_read_and_trailers_are_no_headers(patient: int) -> None:
    """A hundred thousand chunks of a byte each are within bounds; a trailer does not reach the application."""
    with socket.create_connection(("127.0.0.1", patient), timeout=30) as connection:
        connection.sendall(CHUNKED + b"1\r\na\r\n" * 100_000 + b"0\r\nAuthorization: x\r\n\r\n")
        read_until(connection, b"\r\n\r\n100000 2")


def test_an_offer_of_another_protocol_is_not_taken(patient: int) -> None:
    """The request is answered in HTTP/1.1, and so is the next one (RFC 9110 §7.8)."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    with socket.create_connection(("127.0.0.1", patient), timeout=30) as connection:
        connection.sendall(HEAD + upgrade + b"\r\n" + HEAD + b"Connection: close\r\n\r\n")
        assert connection.makefile("rb").read().count(b"HTTP/1.1 200 OK") == 2


def test_a_wrong_request_behind_others_takes_no_answer_from_them(patient: int) -> None:
    """What was asked before is answered; then the connection ends."""
    with socket.create_connection(("127.0.0.1", patient), timeout=30) as connection:
        connection.sendall((HEAD + b"\r\n") * 3 + HEAD + b"X: y\r\n" * 200 + b"\r\n")
        reply = connection.makefile("rb").read()
    assert [reply.count(text) for text in (b"200 OK", b"HTTP/1.1", b"connection: close")] == [3, 3, 1]


def test_a_wrong_body_behind_other_requests_is_no_answer_to_them(patient: int) -> None:
    """The connection ends; nothing that is said of the last request stands where an answer to the first belongs."""
    reply = exchange(patient, (HEAD + b"\r\n") * 3 + CHUNKED + b"no size\r\n")
    assert b"HTTP/1.1 400" not in reply


@BOTH
def test_an_early_answer_leaves_no_connection_without_a_deadline(make: Make) -> None:
    """Once the rest of the body has come, the keep-alive timeout counts."""
    with (
        serving(make, keep_alive=0.3) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
    ):
        connection.sendall(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
        read_until(connection, b"ok")
        connection.sendall(b"body")
        assert connection.recv(1000) == b""


def test_kept_connections_may_wait_between_requests(port: int) -> None:
    """The deadline is for heads alone: a connection that waits longer after an answer is good for another request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", "40000")  # more than one piece
    connection.endheaders()
    connection.send(b"b" * 40_000)
    assert connection.getresponse().read() == b"40000 3"
    kept = connection.sock
    with socket.create_connection(("127.0.0.1", port), timeout=30) as other:
        assert other.recv(1) == b""  # the deadline has passed
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"
    assert connection.sock is kept
    connection.close()


class _Counting(PatientProtocol):
    """Counts what is taken from the socket."""

    taken = 0
    linger = 60.0

    def data_received(self, data: bytes) -> None:
        """Count it."""
        _Counting.taken += len(data)
        super().data_received(data)


async def answer_by_the_head(scope: Any, receive: Any, send: Any) -> None:
    """Refuse by the head alone, but read what goes to /read, and keep the connection of /kept."""
    said = b"no"
    if scope["path"] == "/read":
        said = b"%d" % len((await receive())["body"])
    headers = [(b"content-length", b"%d" % len(said))]
    if scope["path"] == "/":
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": said})


@pytest.fixture
def counting() -> Iterator[tuple[str, int]]:
    """Where a server answers by the head alone and counts."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(answer_by_the_head, http=_Counting, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    _Counting.taken = 0
    try:
        yield listening.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


BODY = 10_000_000


@pytest.mark.parametrize("framing", [b"Content-Length: %d" % BODY, b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
def test_a_body_that_nobody_asked_for_is_not_read(
    counting: tuple[str, int], expect: bytes, framing: bytes
) -> None:
    """An answer by the head ends the connection without a byte of the body, and the client can read it in peace."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\n%b%b\r\n\r\n" % (expect, framing)
    with socket.create_connection(counting, timeout=20) as connection:
        connection.sendall(head)
        reply = read_until(connection, b"\r\n\r\nno")
        with suppress(OSError):
            connection.settimeout(0.3)
            connection.sendall(bytes(BODY))
        connection.settimeout(20)
        assert connection.recv(1000) == b""
    assert reply.startswith(b"HTTP/1.1 421 ")
    assert _Counting.taken == len(head)


def test_a_body_sent_at_once_is_not_read_on(counting: tuple[str, int]) -> None:
    """A client that does not wait loses the body, not the answer: what did not come along with the head is never taken."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % BODY
    with socket.create_connection(counting, timeout=20) as connection:
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):  # a socket closed with bytes unread would reset the connection
            connection.sendall(head + bytes(BODY))
        connection.settimeout(20)
        assert connection.recv(1000).startswith(b"HTTP/1.1 421 ")
    assert _Counting.taken <= len(head) + 256 * 1024  # what one read of a socket may hold


def test_bodies_are_read_when_they_are_asked_for(counting: tuple[str, int]) -> None:
    """Requests with bodies go on as ever, several on one connection, whether their bodies are read or not."""
    connection = http.client.HTTPConnection(*counting, timeout=20)
    for path, expected in (("/read", b"5"), ("/kept", b"no"), ("/read", b"5")):
        connection.request("POST", path, b"12345")
        assert connection.getresponse().read() == expected
    connection.request("POST", "/kept", bytes(300_000))
    assert connection.getresponse().read() == b"no"
    connection.request("POST", "/read", b"1")
    assert connection.getresponse().read() == b"1"
    connection.close()


@BOTH
@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["GET", "GET twice"])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_connection_ends_when_nothing_is_asked_on_it_any_more(
    make: Make, first: bytes, method: bytes
) -> None:
    """Whatever the last answer was to, and however it was given."""
    request = b"%b / HTTP/1.1\r\nHost: a\r\n%b\r\n"
    length = b"Content-Length: 0\r\n"
    with (
        serving(make, keep_alive=0.3) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
    ):
        connection.sendall(request % (b"GET", b""))
        read_until(connection, b"ok")
        if first:
            connection.sendall(first)
            read_until(connection, b"ok")
        connection.sendall(request % (method, length if method == b"POST" else b""))
        read_until(connection, b"ok" if method == b"GET" else b"0 2")
        assert connection.recv(1000) == b""


@contextmanager
def finishing(
    make: Make = PatientProtocol, given: socket.socket | None = None
) -> Iterator[tuple[PatientServer, threading.Thread, tuple[str, int]]]:
    """A server that accepts connections, on a new socket unless it is given one, its thread, and its address."""
    listening = socket.create_server(("127.0.0.1", 0)) if given is None else given
    address = listening.getsockname()
    started = threading.Event()
    config = uvicorn.Config(app, http=make, lifespan="off", log_config=None)  # type: ignore[arg-type]
    server = PatientServer(config, started.set)
    thread = threading.Thread(target=server.run_on, args=([listening],))
    thread.start()
    assert started.wait(20)
    try:
        yield server, thread, address
    finally:
        server.finish(0.0)
        thread.join(20)
        assert not thread.is_alive()


@BOTH
def test_a_server_that_finishes_lets_its_clients_close(make: Make) -> None:
    """With grace, a kept connection gets its next response, which asks to close it; nothing new is accepted."""
    with finishing(make) as (server, thread, address):
        kept = http.client.HTTPConnection(*address, timeout=20)
        kept.request("GET", "/")
        first = kept.getresponse()
        assert (first.read(), first.headers["connection"]) == (b"ok", None)
        server.finish(3600.0)
        eventually_refused(address)
        kept.request("GET", "/")
        reply = kept.getresponse()
        assert (reply.read(), reply.headers["connection"]) == (b"ok", "close")
        thread.join(20)
        assert not thread.is_alive()


def test_the_time_to_finish_is_only_shortened() -> None:
    """A server that waits for its clients ends at once when it is told so."""
    with finishing() as (server, thread, address), socket.create_connection(address):
        server.finish(3600.0)
        eventually_refused(address)
        server.finish(0.0)
        server.finish(3600.0)
        thread.join(20)
        assert not thread.is_alive()


@BOTH
def test_a_server_that_ends_loses_no_client_to_its_successor(make: Make) -> None:
    """Those that it accepted this moment are served, those that wait at the socket are the other's: none is cut off."""
    failed: list[object] = []
    served = itertools.count()
    ending = threading.Event()

    def ask(address: tuple[str, int]) -> None:
        while not ending.is_set():
            try:
                with socket.create_connection(address, timeout=20) as connection:
                    connection.sendall(HEAD + b"Connection: close\r\n\r\n")
                    reply = connection.makefile("rb").read()
                if not reply.endswith(b"ok"):
                    failed.append(reply)
            except OSError as error:
                failed.append(error)
            next(served)

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1000))
        clients = [threading.Thread(target=ask, args=(listening.getsockname(),)) for _ in range(8)]
        last = stack.enter_context(finishing(make, listening.dup()))
        for client in clients:
            client.start()
        for _ in range(20):
            following = stack.enter_context(finishing(make, listening.dup()))
            until = next(served) + 20
            while next(served) < until:
                time.sleep(0.001)
            last[0].finish(5.0)
            last = following
        ending.set()
        for client in clients:
            client.join(20)
    assert failed == []


def eventually_refused(address: tuple[str, int]) -> None:
    """Wait until nothing accepts there."""
    while True:
        try:
            socket.create_connection(address, 20).close()
        except ConnectionError:
            return
