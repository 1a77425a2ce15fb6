"""Keys: JWK sets, and how an edge's are rolled without a gap."""

from __future__ import annotations

import json
from random import Random

import pytest

from gtm.core.handoff.claims import LONGEST
from gtm.core.handoff.keys import (
    AHEAD,
    MOST,
    ROLL_EVERY,
    OwnKey,
    Ring,
    key_bytes,
    key_text,
    rolled,
    thumbprint,
)
from gtm.core.handoff.verdict import Flaw
from gtm.handoff import jwks
from gtm.handoff.carried import added, one_of, split, without
from gtm.handoff.jwt import made
from tests.effort import examples

X = key_text(made().public)
Y = key_text(made().public)


def test_a_set_has_each_key_once() -> None:
    """Its name is its thumbprint."""
    document = json.loads(jwks.written([X, Y, X]))
    assert sorted(key["x"] for key in document["keys"]) == sorted([X, Y])
    assert {key["kty"] for key in document["keys"]} == {"OKP"}
    assert not any("d" in key or "gtm" in "".join(key) for key in document["keys"])
    assert {key["kid"] for key in document["keys"]} == {thumbprint(X), thumbprint(Y)}


@pytest.mark.parametrize(
    "text",
    ["", "x", X[:-1], X + "=", X[:-1] + "\n", "é" * 43, X[:-1] + "B" * 2],
    ids=("empty", "short", "cut", "padded", "line", "other", "long"),  # the key is another in each process
)
def test_texts_that_are_no_key(text: str) -> None:
    """The words say what a key is."""
    with pytest.raises(ValueError, match="43 characters"):
        key_bytes(text)


@pytest.mark.endurance
def test_keys_are_rolled_without_a_gap() -> None:
    """Whatever the feed does, and however late verifiers look: what holds was signed by a key that they have.

    The model of docs/handoff.md, "Keys": a verifier's set is as old as up to an hour less a minute; handoffs hold for up to
    an hour; the feed shows what was published before, when it works at all.
    """
    for seed in range(examples(300)):
        rng = Random(seed)
        now = 1e9
        ring = Ring(_fresh(rng, now))
        feed: frozenset[str] = frozenset(ring.public)
        history = [(now, feed)]
        signed: list[tuple[float, str]] = []
        rolls = 0
        for _ in range(400):
            now += rng.choice([1.0, 600.0, 1800.0, 86_400.0, 5 * 86_400.0])
            if rng.random() < 0.8:
                feed = frozenset(ring.public)
                history.append((now, feed))
            after = rolled(ring, now, feed, _fresh(rng, now))
            rolls += after.current != ring.current
            assert len(after.public) <= MOST
            ring = after
            signed.append((now, key_text(ring.current.public)))
            # Who looked at the feed an hour ago has the key that signs now.
            then = max((at for at, _ in history if at <= now - AHEAD), default=history[0][0])
            assert signed[-1][1] in next(keys for at, keys in history if at == then)
            # What was signed within the longest life of a handoff is still published.
            assert {x for at, x in signed if at >= now - LONGEST} <= set(ring.public)
        assert rolls > 0


def _fresh(rng: Random, now: float) -> OwnKey:
    return OwnKey(rng.randbytes(32), rng.randbytes(32), now)


def test_a_key_that_does_not_come_back_never_signs() -> None:
    """An edge whose control is gone signs on with the key that everybody knows."""
    rng = Random(1)
    ring = first = Ring(_fresh(rng, 0.0))
    for day in range(400):
        ring = rolled(ring, day * 86_400.0, frozenset(first.public), _fresh(rng, 0.0))
    assert ring.current == first.current
    assert ring.next is not None
    assert len(ring.public) == 2


def test_a_key_signs_for_thirty_days() -> None:
    """And not a second less."""
    ring = Ring(_fresh(Random(1), 0.0))
    assert rolled(ring, ROLL_EVERY - 1, frozenset(), _fresh(Random(2), 0.0)) is ring
    assert rolled(ring, ROLL_EVERY, frozenset(), _fresh(Random(2), 0.0)).next is not None


@pytest.mark.parametrize(
    ("query", "rest", "values"),
    [
        (b"", b"", []),
        (b"a=1&b=%20", b"a=1&b=%20", []),
        (b"gtm_handoff=x", b"", [b"x"]),
        (b"a=1&gtm_handoff=x&b", b"a=1&b", [b"x"]),
        (b"gtm_handoff=x&gtm_handoff=y", b"", [b"x", b"y"]),
        (b"gtm_handoff&a", b"a", [b""]),
        (b"my_gtm_handoff=x&gtm_handoffs=y", b"my_gtm_handoff=x&gtm_handoffs=y", []),
        (b"&&gtm_handoff=x&&", b"&&&", [b"x"]),
    ],
)
def test_the_parameter_is_taken_out(query: bytes, rest: bytes, values: list[bytes]) -> None:
    """And nothing else is touched."""
    assert split(query) == (rest, values)
    assert without(query) == rest
    again, found = split(added(rest, b"t"))
    assert found == [b"t"]
    assert again == rest


def test_several_handoffs_cannot_be_right() -> None:
    """None, one, many."""
    assert one_of([]) is None
    assert one_of([b"x"]) == b"x"
    assert one_of([b"x", b"x"]) is Flaw.MALFORMED
