"""What the clients' scripts share: how each case is tried and told. They run in an environment that has the clients and nothing of gtm.

A script gets its world from the environment: `BASE`, the balancer; `SERVER`, the chat server itself, which tells what it has seen; `ROUNDS`, how often each case is
tried, for a request that is sent to either server at random is wrong only sometimes; `WITHOUT`, names of cases that are not tried, with commas.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

BASE, SERVER = os.environ["BASE"], os.environ["SERVER"]
ROUNDS = int(os.environ["ROUNDS"])
WITHOUT = os.environ["WITHOUT"].split(",")
PATIENCE = 20.0
"""Seconds after which what was to come does not."""
IMAGE = b"\x89PNG" + os.urandom(1_500_000)
SOUND = b"RIFF" + os.urandom(2_000_000)
TEXTS = [f"text number {number}" for number in range(2000)]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
LIMITED, FREE = "key-of-acme", "key-of-nobody"
"""Keys: of a tenant that may ask once in a long time, and one that is no tenant's."""
Case = Callable[[], None]


def tell(*cases: Case) -> None:
    """Try each case, and print a line of JSON of it: its name, how often it was right, and what was wrong first."""
    for case in cases:
        name = case.__name__.replace("_", " ")
        if name in WITHOUT:
            continue
        right, wrong = 0, ""
        for _ in range(ROUNDS):
            try:
                case()
            except Exception as error:
                wrong = wrong or f"{type(error).__name__}: {error}"[:600]
            else:
                right += 1
        print(json.dumps({"case": name, "right": right, "of": ROUNDS, "wrong": wrong}), flush=True)


def same(found: object, expected: object) -> None:
    """Raises AssertionError where they differ."""
    if found != expected:
        raise AssertionError(f"{str(found)[:300]} is not {str(expected)[:300]}")


def seen() -> int:
    """Answers of the chat server that were not awaited to their end."""
    with urllib.request.urlopen(f"{SERVER}/seen", timeout=PATIENCE) as answer:  # noqa: S310 - the test's own server
        found: int = json.load(answer)["cancelled"]
    return found


def advance() -> None:
    """Have the chat server send the next letter of an answer to `in turns`."""
    with urllib.request.urlopen(f"{SERVER}/next", timeout=PATIENCE):  # noqa: S310 - the test's own server
        pass


def in_turns(letters: Iterable[str]) -> None:
    """Each letter of an answer arrives before the server sends the next one: nobody on the way waits for more."""
    found = ""
    for one in letters:
        found += one
        if one:
            advance()
    same(found, "in turns")


def turns(content: object = "hello", **more: object) -> dict[str, object]:
    """The body of a chat, for clients that know nothing of models."""
    return {"model": "llama", "messages": [{"role": "user", "content": content}], **more}


def picture() -> list[dict[str, object]]:
    """What is asked of an image."""
    url = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    return [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": url}}]


def letter_of(line: str) -> str:
    """What a line of a stream says."""
    if not line.startswith("data: {"):
        return ""
    found = json.loads(line[6:])["choices"]
    return str(found[0]["delta"].get("content") or "") if found else ""


@contextmanager
def leaving() -> Iterator[None]:
    """The chat server sees at once that the client has left, and before the client's process ends: an answer that never ends shows it."""
    before = seen()
    yield
    until = time.monotonic() + PATIENCE
    while seen() == before:
        if time.monotonic() > until:
            raise AssertionError("the server does not see that the client has left")
        time.sleep(0.005)


@contextmanager
def raising(kind: type[Exception], *words: str) -> Iterator[None]:
    """The client raises this, and says these words."""
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise AssertionError(f"it does not say {missing}: {error}") from error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def limited(ask: Case, kind: type[Exception], *words: str) -> None:
    """The tenant's second request is one too many, if not the first one already."""
    with raising(kind, *words):
        ask()
        ask()
