"""Python's requests, against one balancer."""

import requests
from asking import BASE, FREE, IMAGE, in_turns, leaving, letter_of, picture, same, tell, turns

client = requests.Session()
client.headers["Authorization"] = f"Bearer {FREE}"


def say(content="hello", **more):
    return client.post(f"{BASE}/v1/chat/completions", json=turns(content, **more), timeout=60, stream=True)


def letters(answer):
    return (letter_of(line) for line in answer.iter_lines(chunk_size=None, decode_unicode=True))


def chat():
    same(say().json()["choices"][0]["message"]["content"], "hello")


def stream():
    same("".join(letters(say(stream=True))), "hello")


def image():
    same(say(picture()).json()["choices"][0]["message"]["content"], f"{len(IMAGE)} bytes")


def body_in_chunks():
    """Of unknown length."""
    body = requests.Request("POST", "http://a", json=turns()).prepare().body
    pieces = (body[number : number + 9] for number in range(0, len(body), 9))
    url, kind = f"{BASE}/v1/chat/completions", {"Content-Type": "application/json"}
    answer = client.post(url, data=pieces, headers=kind, timeout=60)
    same(answer.json()["choices"][0]["message"]["content"], "hello")


def one_by_one():
    in_turns(letters(say("in turns", stream=True)))


def cancel():
    with leaving(), say("forever", stream=True) as answer:
        next(answer.iter_lines())


tell(chat, stream, one_by_one, image, body_in_chunks, cancel)
