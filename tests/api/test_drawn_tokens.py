"""Tokens whose text whoever asks has drawn: control gets its digest, and never the text."""

from __future__ import annotations

from hashlib import sha256

import httpx

from tests.api.conftest import Api
from tests.api.test_resources import problem

TEXT, NEXT = "a" * 48, "b" * 48


def digest(text: str) -> str:
    """What control gets of a text."""
    return sha256(text.encode()).hexdigest()


def reads(world: Api, text: str) -> bool:
    """Whether a text is that of a token that works."""
    headers = {"Authorization": f"Bearer {text}"}
    return httpx.get(f"{world.url}/v1/status", headers=headers, trust_env=False).status_code == 200


def test_a_text_drawn_elsewhere(world: Api) -> None:
    """It works, is in no answer, and is replaced by another one, for a while or at once."""
    made = world.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer", "sha256": digest(TEXT)})
    assert (made.status_code, made.json()["token"]) == (201, None)
    assert reads(world, TEXT)
    drawn = {"sha256": digest(NEXT), "grace_seconds": 600}
    rotated = world.admin.post("/v1/tokens/ci:rotate", json=drawn)
    assert (rotated.status_code, rotated.json()["token"]) == (201, None)
    assert rotated.json()["id"] != made.json()["id"]
    assert reads(world, TEXT)
    assert reads(world, NEXT)
    world.admin.delete("/v1/tokens/ci")
    assert not reads(world, TEXT)
    assert not reads(world, NEXT)


def test_a_text_is_one_tokens(world: Api) -> None:
    """Neither another's, nor one that was."""
    body = {"name": "one", "role": "viewer", "sha256": digest(TEXT)}
    assert world.admin.post("/v1/tokens", json=body).status_code == 201
    again = world.admin.post("/v1/tokens", json={**body, "name": "two"})
    assert "draw another" in problem(again, 409)
    assert "draw another" in problem(
        world.admin.post("/v1/tokens/one:rotate", json={"sha256": digest(TEXT)}), 409
    )
    world.admin.delete("/v1/tokens/one")
    assert "draw another" in problem(world.admin.post("/v1/tokens", json={**body, "name": "two"}), 409)


def test_a_digest_is_one(world: Api) -> None:
    """64 lower-case hexadecimal digits; operators make no tokens by it either."""
    for wrong in ("", "0" * 63, "0" * 65, "G" * 64, "A" * 64, 7):
        body = {"name": "ci", "role": "viewer", "sha256": wrong}
        problem(world.admin.post("/v1/tokens", json=body), 422)
    body = {"name": "ci", "role": "viewer", "sha256": digest(TEXT)}
    problem(world.operator.post("/v1/tokens", json=body), 403)
