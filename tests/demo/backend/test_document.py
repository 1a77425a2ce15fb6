"""The examples of docs/demo-backend.md, against the command that it starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/demo-backend.md").read_text()
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
START, ASK, CLIENT, BREAK = (text for _, text in BLOCKS)
GTM = f"{sys.executable} -m gtm.cli"


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    """The servers of the page, on free ports: the page's address → the real one."""
    arguments = START.replace("8000", "0").replace("8100", "0").split()
    command = [*GTM.split(), *arguments[1:], "--speed", "20", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            said = json.loads(process.stdout.readline())
            found = {f"http://127.0.0.1:{8000 + number}": url for number, url in enumerate(said["backends"])}
            yield found | {"http://127.0.0.1:8100": said["admin"]}
        finally:
            process.terminate()
            process.wait(20)


def shell(text: str, places: dict[str, str]) -> str:
    """Run an example; what it prints."""
    for address, url in places.items():
        text = text.replace(address, url)
    text = text.replace("gtm demo", f"{GTM} demo")
    done = subprocess.run(
        ["bash", "-ec", text], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_three_stand(places: dict[str, str]) -> None:
    """As many as were asked for, each with its own state."""
    assert len(places) == 4
    state = httpx.get(places["http://127.0.0.1:8100"] + "/demo/state", trust_env=False).json()
    assert [one["models"] for one in state["backends"]] == [{"llama": "loaded"}] * 3


def test_curl(places: dict[str, str]) -> None:
    """A stream of five tokens."""
    events = shell(ASK, places).split("\n\n")
    assert sum('"content":" ' in event for event in events) == 5
    assert events[-2] == "data: [DONE]"


def test_openai_client(places: dict[str, str]) -> None:
    """The page's program prints twenty words."""
    program = CLIENT
    for address, url in places.items():
        program = program.replace(address, url)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert len(done.stdout.split()) == 20


def test_breaking(places: dict[str, str]) -> None:
    """Each command says what it has done; the last one heals all."""
    assert shell(BREAK, places).splitlines()[-1].endswith(": ok")
    state = httpx.get(places["http://127.0.0.1:8100"] + "/demo/state", trust_env=False).json()
    assert {one["fault"]["mode"] for one in state["backends"]} == {"ok"}


def test_modes_are_listed() -> None:
    """The page has every mode."""
    from gtm.demo.backend.faults import Mode

    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert {mode.value for mode in Mode} - {"ok"} <= listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-model-len", "999999"], "does not fit into"),
        (["--host", "nowhere.invalid", "--addresses"], "IPv4 address"),
        (["--port", "65535", "--count", "2"], "do not exist"),
        (["--gpu-gb", "1"], "out of memory"),
    ],
)
def test_what_cannot_stand(arguments: list[str], message: str) -> None:
    """A clear message, and no traceback."""
    done = subprocess.run(
        [*GTM.split(), "demo", "backend", "--port", "0", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_break_says_who_is_not_there() -> None:
    """And how to heal one that refuses."""
    done = subprocess.run(
        [*GTM.split(), "demo", "break", "http://127.0.0.1:1", "ok"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode != 0
    assert "--admin-port" in done.stderr
