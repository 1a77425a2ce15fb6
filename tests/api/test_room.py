"""The line on which balancers say their free slots, over a real connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from gtm.feed.wire import RoomMessage
from tests.api.conftest import Api
from tests.api.test_feed import follow, until
from tests.system.harness import eventually

LINE = b'{"source":"x","started":1.0,"sequence":%d,"age":0.0,"whole":{"free":%d,"limit":8,"waiting":0}}\n'
REGION = "eu-central"


class Line:
    """A chunked body, a line at a time."""

    def __init__(self, api: Api, region: str = REGION) -> None:
        parts = urlsplit(api.server.url)
        self.socket = socket.create_connection((parts.hostname, parts.port), 20)
        head = (
            f"POST /v1/balancers/fra-1/room?region={region} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: {api.balancer.headers['Authorization']}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self.socket.sendall(head.encode())

    def say(self, line: bytes) -> None:
        """Send something."""
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(line), line))

    def end(self) -> bytes:
        """End the body; the answer's first line."""
        self.socket.sendall(b"0\r\n\r\n")
        return self.answer()

    def answer(self) -> bytes:
        """What comes."""
        return self.socket.recv(65_536).split(b"\r\n")[0]


@pytest.fixture
def line(world: Api) -> Iterator[Line]:
    """A balancer's line."""
    found = Line(world)
    yield found
    found.socket.close()


def _free(world: Api) -> list[float]:
    """What followers are told of the region."""
    rooms = world.server.app.state.context.replica.now.rooms.rooms.get(REGION, ())
    return [one.whole.free for one in rooms]


def _suspects(world: Api) -> tuple[str, ...]:
    found: tuple[str, ...] = world.server.app.state.context.replica.now.rooms.suspects
    return found


def test_followers_hear_of_free_slots(world: Api, line: Line) -> None:
    """Edges and balancers, under the name that the token and the path give; and of nothing wrong once it says goodbye."""
    with follow(world) as messages:
        line.say(LINE % (1, 5))
        told = until(messages, lambda one: isinstance(one, RoomMessage) and REGION in one.rooms)
    assert isinstance(told, RoomMessage)
    (room,) = told.rooms[REGION]
    assert (room.source.partition("/")[2], room.whole.free, room.whole.limit) == ("fra-1", 5, 8)
    line.say(b"\n" + LINE % (2, 3))
    eventually(lambda: _free(world) == [3], "what is newer counts")
    line.say(LINE % (1, 8) + b"{}\n")
    assert line.end() == b"HTTP/1.1 204 No Content"
    assert (_free(world), _suspects(world)) == ([3], ())


def test_a_line_that_breaks_off_makes_a_suspect(world: Api, line: Line) -> None:
    """The death of a process is told by the end of its connection."""
    line.say(LINE % (1, 5))
    eventually(lambda: _free(world) == [5], "it is heard")
    line.socket.close()
    eventually(lambda: _suspects(world) == (REGION,), "it is a suspect")
    eventually(lambda: _suspects(world) == (), "for a moment")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\n", b"400"),
        (b'{"source":"x","started":1,"sequence":1,"age":0,"whole":{"free":9,"limit":8}}\n', b"400"),
        (b'{"source":"x","started":1,"sequence":1,"age":0,"whole":{"free":-1,"limit":8}}\n', b"400"),
        (b"x" * 70_000, b"400"),
        (b'{"source":"x","started":1,"sequence":1,"age":0,"whole":{"free":1e308,"limit":1e308}}\n', b"400"),
        (b'{"source":"x","started":1,"sequence":1,"age":0,"whole":{"free":1,"limit":1000001}}\n', b"400"),
        (
            b'{"source":"x","started":1,"sequence":%d,"age":0,"whole":{"free":1,"limit":1}}\n' % (2**70),
            b"400",
        ),
        (
            b'{"source":"x","started":1,"sequence":%d,"age":0,"whole":{"free":1,"limit":1}}\n' % (2**53),
            b"400",
        ),
        (b'{"source":"x","started":1e12,"sequence":1,"age":0,"whole":{"free":1,"limit":1}}\n', b"400"),
    ],
)
@pytest.mark.reads
def test_what_is_no_report_is_refused(world: Api, line: Line, sent: bytes, status: bytes) -> None:
    """With what was wrong; nothing is told of it."""
    line.say(sent)
    assert line.answer().split()[1] == status
    assert _free(world) == []


@pytest.mark.reads
def test_a_token_speaks_of_its_own_region(world: Api) -> None:
    """Of another it is refused, before a line is read."""
    found = Line(world, "us-east")
    found.say(LINE % (1, 5))
    assert found.answer().split()[1] == b"403"
    found.socket.close()


def test_what_balancers_pushed_is_at_a_glance(world: Api) -> None:
    """By regions and why; of a region that the token is not for, nothing; what is malformed is said."""
    path = "/v1/balancers/fra-1/report"
    report = {"region": REGION, "pushes": {"chat\t\tno_quota": 30, "chat\tgone\tmoved": 9}, "seconds": 1.0}
    assert world.balancer.post(path, json=report).status_code == 200
    (found,) = world.admin.get("/v1/top").json()["pushes"]
    assert (found["from"], found["to"], found["why"]) == (REGION, None, "no_quota")
    assert found["requests_per_second"] > 1
    others = world.balancer.post(path, json={**report, "region": "us-east"})
    assert (others.status_code, others.json()["errors"][0]["code"]) == (422, "forbidden")
    wrong = {**report, "pushes": {"chat": 1, "chat\t\tmoved": -1}, "seconds": 1e9}
    refused = world.balancer.post(path, json=wrong)
    assert refused.status_code == 422
    assert {one["path"] for one in refused.json()["errors"]} == {"pushes", "seconds"}


def test_parts_that_the_policy_does_not_name_are_told_to_nobody(world: Api, line: Line) -> None:
    """What they are is of no use to anybody, and would go to everybody ten times a second."""
    parts = b",".join(b'"p%d":{"free":1,"limit":1}' % number for number in range(900))
    head = b'{"source":"x","started":1,"sequence":1,"age":0,"whole":{"free":3,"limit":8},'
    line.say(head + b'"parts":{"chat":{"free":2,"limit":2},%b}}\n' % parts)
    eventually(lambda: _free(world) == [3], "it is heard")
    (room,) = world.server.app.state.context.replica.now.rooms.rooms[REGION]
    assert set(room.parts) <= {"chat"}
    assert 'gtm_control_report_dropped_total{part="room_parts"} 90' in world.admin.get("/metrics").text
