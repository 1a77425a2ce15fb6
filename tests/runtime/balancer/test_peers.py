"""Who is believed of the region's other balancers, and what bytes from anywhere can do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.flights import PeerLoad
from gtm.core.balance.groups import MOST_GROUPS
from gtm.core.balance.sharing import SlotUse
from gtm.core.handoff.keys import OwnKey, key_text
from gtm.feed.wire import Peer
from gtm.handoff.jwt import made
from gtm.runtime.balancer.carrier import Word, together
from gtm.runtime.balancer.peers import (
    CLOCKS_APART,
    MOST,
    MOST_BACKENDS,
    MOST_MEMBERS,
    MOST_OF_A_TOKEN,
    MOST_STARTS,
    REMEMBERED,
    BadDatagram,
    Known,
    Said,
    WordSealer,
    opened,
)

OURS, THEIRS, OTHERS = made(), made(), made()
WORD = Word({"b.1/1": SlotUse(3, 1)}, {"http://10.0.0.1:8000": PeerLoad(3, 1_500_000)})
names = st.text(min_size=1, max_size=40)
counts = st.integers(0, 10**9)
words = st.builds(
    Word,
    st.dictionaries(names, st.builds(SlotUse, counts, counts), max_size=5),
    st.dictionaries(names, st.builds(PeerLoad, counts, counts), max_size=5),
    st.floats(0, 3600),
    groups=st.dictionaries(
        names, st.dictionaries(names, st.builds(SlotUse, counts, counts), max_size=3), max_size=3
    ),
)


def _signed(text: bytes) -> bytes:
    """A peer's signature over any bytes."""
    return Ed25519PrivateKey.from_private_bytes(THEIRS.private).sign(text)


def _peer(key: OwnKey, name: str = "t/b", region: str = "fra", more: tuple[str, ...] = ()) -> Peer:
    return Peer(region, name, "192.0.2.1:8088", (key_text(key.public), *more))


@dataclass
class _Clock:
    """A balancer's clocks: one that grows, one that people set."""

    now: float = 100.0
    wall: float = 1_700_000_000.0

    def known(self) -> Known:
        """What a balancer of Frankfurt knows of others, which is only one's key."""
        found = Known("fra", "a.1", lambda: self.now, lambda: self.wall)
        found.learn([_peer(THEIRS), _peer(OTHERS, region="iad", name="t/c")])
        return found

    def said(self, sequence: int = 1, **more: object) -> Said:
        """Something that a peer says now."""
        told: dict[str, object] = {
            "region": "fra",
            "instance": "b.1",
            "sequence": sequence,
            "at": self.wall,
            "word": WORD,
        }
        if "instance" in more:
            told["word"] = Word({f"{more['instance']}/1": SlotUse(3, 1)}, WORD.loads)
        return Said(**{**told, **more})  # type: ignore[arg-type]


@given(words, st.integers(0, 2**53 - 1), st.booleans())
def test_what_is_sealed_is_opened(word: Word, sequence: int, ending: bool) -> None:
    """As it was said, with the key that it was verified by."""
    said = Said("fra", "b.1", sequence, 1.5, word, ending)
    assert opened(WordSealer(THEIRS).seal(said), lambda _: True) == said._replace(key=THEIRS.public)


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 400))
def test_other_bytes_are_refused(noise: bytes, begin: int, length: int) -> None:
    """Whatever they are, and wherever they stand in what a peer said: refused as one kind of error."""
    good = WordSealer(THEIRS).seal(_Clock().said())
    for bad in (noise, good[:begin] + noise + good[begin + length :], good[:begin]):
        if bad != good:
            with pytest.raises(BadDatagram):
                opened(bad, lambda _: True)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"[" * 50_000,
        b'{"region":"fra","instance":"b","sequence":1,"at":1,"uses":{"m":[-1,0]},"loads":{}}',
        b'{"region":"fra","instance":"b","sequence":1,"at":1,"uses":{"m":[1e300,0]},"loads":{}}',
        b'{"region":"fra","instance":"b","sequence":1,"at":1,"uses":{},"loads":{"x":[1,99999999999999999999]}}',
        b'{"region":"fra","instance":"b","sequence":1,"at":NaN,"uses":{},"loads":{}}',
        b'{"region":"fra","instance":"","sequence":1,"at":1,"uses":{},"loads":{}}',
        b'{"region":"fra","instance":"b","sequence":1,"at":1,"uses":{%b},"loads":{}}'
        % b",".join(b'"%d":[0,0]' % number for number in range(300)),
        b'{"region":"fra","instance":"b","sequence":1,"at":1,"age":-1,"uses":{},"loads":{}}',
    ],
)
def test_even_a_peer_cannot_say_what_means_nothing(body: bytes) -> None:
    """Signed rightly: numbers that no balancer has, too many of something, nothing of it."""
    signature = _signed(b"GTMW1\0" + body)
    with pytest.raises(BadDatagram):
        opened(b"GTMW1" + THEIRS.public + signature + body, lambda _: True)


def test_a_signature_is_for_a_datagram_of_this_form_alone() -> None:
    """Not one over the bare text, as a JWT's is; nor under another beginning; nor beyond the size that is accepted."""
    sealer = WordSealer(THEIRS)
    good = sealer.seal(_Clock().said())
    body = good[5 + 32 + 64 :]
    long = body + b" " * MOST
    for bad in (
        b"GTMW2" + good[5:],
        b"GTMW1" + THEIRS.public + _signed(body) + body,
        b"GTMW1" + THEIRS.public + _signed(b"GTMW1\0" + long) + long,
    ):
        with pytest.raises(BadDatagram):
            opened(bad, lambda _: True)


def test_a_datagram_has_room_for_what_matters() -> None:
    """With thousands of backends it still fits, with those that have most work, and says of slots all that there is."""
    loads = {f"http://backend-{number}.example.com:8000": PeerLoad(1, number) for number in range(5000)}
    datagram = WordSealer(THEIRS).seal(_Clock().said(word=Word(WORD.uses, loads)))
    assert len(datagram) <= MOST
    word = opened(datagram, lambda _: True).word
    assert word.uses == WORD.uses
    assert 200 < len(word.loads) <= MOST_BACKENDS
    assert min(load.work_us for load in word.loads.values()) == 5000 - len(word.loads)


def test_who_is_believed() -> None:
    """A key that control published for a balancer of this region, and nobody else's; each word once, and not long after."""
    clock = _Clock()
    known = clock.known()
    assert known.hear(WordSealer(THEIRS).seal(clock.said(5)))
    heard = replace(WORD, balancer="t/b")
    assert known.words() == {"b.1": heard}
    for key, said in (
        (OTHERS, clock.said(6)),  # of another region
        (OURS, clock.said(6)),  # of nobody
        (THEIRS, clock.said(5)),  # again
        (THEIRS, clock.said(4)),  # late
        (THEIRS, clock.said(6, region="iad")),
        (THEIRS, clock.said(6, at=clock.wall - CLOCKS_APART - 1)),
        (THEIRS, clock.said(6, at=clock.wall + CLOCKS_APART + 1)),
        (THEIRS, clock.said(6, instance="a.1")),  # ourselves
        (THEIRS, clock.said(6, word=Word({"a.1": SlotUse(9, 9)}))),  # of others' processes
        (THEIRS, clock.said(6, word=Word({"b.1/1": SlotUse(9, 9), "c.1/1": SlotUse(0, 0)}))),
        (THEIRS, clock.said(6, word=replace(WORD, groups={"g": {"c.1/1": SlotUse(0, 0)}}))),
    ):
        assert not known.hear(WordSealer(key).seal(said)), said
    assert known.words() == {"b.1": heard}
    clock.now += 0.5
    assert known.words()["b.1"].age == 0.5
    clock.wall += CLOCKS_APART - 1
    assert known.hear(WordSealer(THEIRS).seal(clock.said(6, at=clock.wall - CLOCKS_APART + 1)))


def test_an_instance_is_its_peers_own() -> None:
    """Another balancer of the region does not speak for it; the same one may by its next key."""
    clock = _Clock()
    known = clock.known()
    following = made()
    known.learn([_peer(THEIRS, more=(key_text(following.public),)), _peer(OURS, "t/d")])
    assert known.hear(WordSealer(THEIRS).seal(clock.said(1)))
    assert not known.hear(WordSealer(OURS).seal(clock.said(2)))
    assert known.hear(WordSealer(following).seal(clock.said(3)))


def test_no_token_crowds_out_others() -> None:
    """However many balancers one token gives itself names for, those of others are heard."""
    known = _Clock().known()
    flood = [_peer(OURS, f"a/{number:03}") for number in range(500)]
    known.learn([*flood, _peer(THEIRS)])
    assert "t/b" in {one.name for one in known.peers()}
    assert len(known.peers()) == MOST_OF_A_TOKEN + 1
    assert known.addresses() == (_peer(OURS).address,), (
        "a place is told what there is as often, whatever it is called"
    )


def test_goodbye_is_for_good() -> None:
    """What ended has nothing, and what it said before is not taken for new."""
    clock = _Clock()
    known = clock.known()
    before = WordSealer(THEIRS).seal(clock.said(1))
    assert known.hear(WordSealer(THEIRS).seal(clock.said(2, ending=True)))
    assert known.words() == {}
    assert not known.hear(before)
    clock.now += 3600
    clock.wall += 3600
    assert known.words() == {}
    assert not known.hear(before)


def test_peers_are_remembered_without_control() -> None:
    """For ever while control says nothing; for a while where it has begun anew and does not know them yet."""
    clock = _Clock()
    known = clock.known()
    clock.now += 86_400
    assert [one.name for one in known.peers()] == ["t/b"]
    assert known.hear(WordSealer(THEIRS).seal(clock.said(1)))
    assert not known.learn([])
    assert known.hear(WordSealer(THEIRS).seal(clock.said(2)))
    clock.now += REMEMBERED - 1
    assert not known.learn([_peer(THEIRS)])
    clock.now += REMEMBERED + 1
    assert known.hear(WordSealer(THEIRS).seal(clock.said(3)))
    known.learn([])
    clock.now += REMEMBERED + 1
    assert known.words() == {}
    assert not known.hear(WordSealer(THEIRS).seal(clock.said(4)))


def test_starts_of_a_peer_and_its_datagrams_are_bounded() -> None:
    """The newest starts count; a flood by a peer's own key is not verified without end."""
    clock = _Clock()
    known = clock.known()
    for number in range(20):
        clock.wall += 0.1
        assert known.hear(WordSealer(THEIRS).seal(clock.said(1, instance=f"b.{number}")))
    assert sorted(known.words()) == sorted(f"b.{number}" for number in range(20 - MOST_STARTS, 20))
    sealer = WordSealer(THEIRS)
    heard = sum(known.hear(sealer.seal(clock.said(number + 2, instance="b.19"))) for number in range(400))
    assert heard == 180
    clock.now += 0.5
    heard = sum(known.hear(sealer.seal(clock.said(number + 500, instance="b.19"))) for number in range(400))
    assert heard == 100


def test_what_does_not_fit_is_left_out() -> None:
    """Backends with least work first, then groups: what each has of the region's slots is always told."""
    uses = {f"b.1/{number}": SlotUse(1, 1) for number in range(MOST_MEMBERS)}
    loads = {f"http://10.0.0.1:{number}": PeerLoad(1, number) for number in range(2000)}
    groups = {str(number): uses for number in range(2 * MOST_GROUPS)}
    said = _Clock().said(word=Word(uses, loads, groups=groups))
    sealed = WordSealer(THEIRS).seal(said)
    assert len(sealed) <= MOST
    assert opened(sealed, lambda _: True).word == Word(uses)
    few = _Clock().said(word=Word({"b.1/1": SlotUse(1, 1)}, loads, groups={name: {} for name in groups}))
    found = opened(WordSealer(THEIRS).seal(few), lambda _: True).word
    assert len(found.groups) == 2 * MOST_GROUPS
    assert "http://10.0.0.1:1999" in found.loads


def test_words_add_up() -> None:
    """What workers say, as their balancer's."""
    one = Word({"b/1": SlotUse(1, 2)}, {"x": PeerLoad(1, 5), "y": PeerLoad(2, 5)}, 0.1)
    two = Word({"b/2": SlotUse(3, 0)}, {"x": PeerLoad(3, 7)}, 0.3)
    one = replace(one, groups={"g": {"b/1": SlotUse(1, 0)}, "h": {"b/1": SlotUse(0, 2)}})
    two = replace(two, groups={"g": {"b/2": SlotUse(3, 0)}})
    assert together([one, two]) == Word(
        {"b/1": SlotUse(1, 2), "b/2": SlotUse(3, 0)},
        {"x": PeerLoad(4, 12), "y": PeerLoad(2, 5)},
        0.3,
        groups={
            "g": {"b/1": SlotUse(1, 0), "b/2": SlotUse(3, 0)},
            "h": {"b/1": SlotUse(0, 2)},
        },
    )
    assert together([]) == Word()
