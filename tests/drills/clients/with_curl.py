"""curl, against one balancer."""

import json
import subprocess

from asking import BASE, FREE, IMAGE, in_turns, leaving, letter_of, picture, same, tell, turns

ASKS = ["curl", "-sSN", "--max-time", "60", "--fail-with-body", "-H", f"Authorization: Bearer {FREE}"]
ASKS += ["-H", "Content-Type: application/json", "--data-binary", "@-", f"{BASE}/v1/chat/completions"]


def begun(content="hello", *options, **more):
    asking = subprocess.Popen([*ASKS, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    asking.stdin.write(json.dumps(turns(content, **more)))
    asking.stdin.close()
    return asking


def answered(content, *options):
    with begun(content, *options) as asking:
        said = json.load(asking.stdout)
    same(asking.returncode, 0)
    return said["choices"][0]["message"]["content"]


def chat():
    same(answered("hello"), "hello")


def stream():
    with begun(stream=True) as asking:
        same("".join(map(letter_of, asking.stdout)), "hello")


def image():
    """It asks whether it may go on (`Expect`) before it sends it."""
    same(answered(picture()), f"{len(IMAGE)} bytes")


def body_in_chunks():
    """Of unknown length."""
    same(answered("hello", "-H", "Transfer-Encoding: chunked"), "hello")


def one_by_one():
    with begun("in turns", stream=True) as asking:
        in_turns(map(letter_of, asking.stdout))


def cancel():
    with leaving(), begun("forever", stream=True) as asking:
        asking.stdout.readline()
        asking.kill()


tell(chat, stream, one_by_one, image, body_in_chunks, cancel)
