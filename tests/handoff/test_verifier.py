"""What is remembered of handoffs: verified ones, and those that were used."""

from __future__ import annotations

from dataclasses import replace

from gtm.core.handoff.keys import PublicKeys
from gtm.core.handoff.verdict import Flaw, Reuse
from gtm.handoff.jwt import HandoffSigner
from gtm.handoff.verifier import Disbelief, Nonces, Verifier
from tests.handoff.test_jwt import CLAIMS, KEY, PUBLISHED
from tests.memory import held

MANY = replace(CLAIMS, once=False)


def test_verified_handoffs_are_remembered_within_bounds() -> None:
    """The same token is the same value; of many, two generations stay."""
    verifier = Verifier(PUBLISHED, room=4)
    tokens = [HandoffSigner(KEY).sign(replace(MANY, nonce=f"n{number}")) for number in range(300)]
    first = verifier.verify(tokens[0])
    assert verifier.verify(tokens[0]) is first

    def verify() -> None:
        for token in tokens:
            verifier.verify(token)

    assert held(verify) < 50_000  # eight; 300 would take ten times as much
    assert verifier.verify(tokens[0]) is not first


def test_what_is_for_one_request_or_not_believed_is_not_remembered() -> None:
    """It takes room from nobody."""
    verifier = Verifier(PUBLISHED, room=1)
    many, once = HandoffSigner(KEY).sign(MANY), HandoffSigner(KEY).sign(CLAIMS)
    first = verifier.verify(many)
    for _ in range(3):
        assert verifier.verify(once) == CLAIMS
        assert verifier.verify(once) is not verifier.verify(once)
        assert verifier.verify(once[:-1]) is Flaw.MALFORMED
    assert verifier.verify(many) is first


def test_a_key_that_is_withdrawn_takes_its_handoffs_along() -> None:
    """With other keys there is another verifier, which remembers nothing of this one's."""
    token = HandoffSigner(KEY).sign(MANY)
    assert Verifier(PUBLISHED).verify(token) == MANY
    assert Verifier(PublicKeys(version=2)).verify(token) is Flaw.UNKNOWN_KEY


def test_who_is_not_believed_is_looked_at_no_more() -> None:
    """For the rest of the second; who else sends handoffs does not feel it, and memory is bounded."""
    disbelief = Disbelief(most=3, clients=2)
    for _ in range(3):
        assert disbelief.looks(b"stranger", 7.1)
        disbelief.failed(b"stranger", 7.1)
    assert not disbelief.looks(b"stranger", 7.9)
    assert disbelief.looks(b"honest", 7.9)
    disbelief.failed(b"honest", 7.9)
    for _ in range(9):
        disbelief.failed(b"another", 7.9)  # there is no room for it
    assert disbelief.looks(b"another", 7.9)
    assert disbelief.looks(b"stranger", 8.0)
    disbelief.failed(b"another", 8.0)
    assert disbelief.looks(b"stranger", 8.0)


def test_a_nonce_is_used_once() -> None:
    """By issuer: two edges may come upon the same one."""
    nonces = Nonces()
    assert nonces.use(CLAIMS, 0.0) is Reuse.NEW
    assert nonces.use(CLAIMS, 0.0) is Reuse.USED
    assert nonces.use(replace(CLAIMS, issuer="fra-2"), 0.0) is Reuse.NEW
    assert nonces.use(replace(CLAIMS, nonce="another"), 0.0) is Reuse.NEW


def test_a_full_memory_says_so_until_something_ends() -> None:
    """What still holds is never forgotten for what comes."""
    nonces = Nonces(most=3)
    end = CLAIMS.expires
    for number in range(3):
        assert nonces.use(replace(CLAIMS, nonce=f"n{number}", expires=end + number), 0.0) is Reuse.NEW
    assert nonces.use(replace(CLAIMS, nonce="more"), 0.0) is Reuse.FULL
    assert nonces.use(replace(CLAIMS, nonce="n1"), 0.0) is Reuse.USED
    assert nonces.use(replace(CLAIMS, nonce="more"), end - 1.0) is Reuse.FULL
    assert nonces.use(replace(CLAIMS, nonce="more"), float(end)) is Reuse.NEW
    assert len(nonces) == 3
    assert nonces.use(replace(CLAIMS, nonce="n2"), float(end)) is Reuse.USED
