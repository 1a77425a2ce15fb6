"""Python's websockets, against one balancer."""

import os

from asking import BASE, FREE, PATIENCE, raising, same, tell
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

URL = BASE.replace("http", "ws", 1) + "/v1/realtime?model=llama"


def opened(key=FREE):
    by = {"Authorization": f"Bearer {key}"}
    return connect(URL, additional_headers=by, max_size=None, open_timeout=PATIENCE, proxy=None)


def both_ways():
    with opened() as socket:
        same(socket.recv(PATIENCE), "hello")
        for message in ("first", os.urandom(3_000_000), "last"):
            socket.send(message)
            same(socket.recv(PATIENCE) == message, True)
        same(socket.ping().wait(PATIENCE), True)


def servers_end():
    with opened() as socket, raising(ConnectionClosed, "4001", "bye"):
        socket.recv(PATIENCE)
        socket.send("leave")
        socket.recv(PATIENCE)


def wrong_key():
    with raising(InvalidStatus, "401"):
        opened("key-of-another")


tell(both_ways, servers_end, wrong_key)
