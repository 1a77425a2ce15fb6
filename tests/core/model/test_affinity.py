"""Weighted rendezvous hashing: fair, steady, and the same everywhere."""

from __future__ import annotations

import pytest

from gtm.core.model.affinity import key_hash, rendezvous

CLIENTS = [key_hash(f"client-{number}") for number in range(20_000)]
NAMES = ("eu-central", "eu-west", "us-east", "ap-northeast")
HASHES = tuple(key_hash(name) for name in NAMES)


def _assign(weights: dict[str, float]) -> list[str]:
    names = tuple(weights)
    hashes = [key_hash(name) for name in names]
    values = list(weights.values())
    return [names[rendezvous(client, hashes, values)] for client in CLIENTS]


def _weights(*values: float) -> dict[str, float]:
    return dict(zip(NAMES, values, strict=True))


@pytest.mark.parametrize("values", [(1, 1, 1, 1), (4, 3, 2, 1), (0.1, 0.1, 0.1, 0.7), (100, 1, 50, 49)])
def test_clients_are_shared_out_by_weight(values: tuple[float, ...]) -> None:
    """Each candidate wins its weight's part of the clients, within one percent of all."""
    assigned = _assign(_weights(*values))
    for name, value in zip(NAMES, values, strict=True):
        assert assigned.count(name) / len(CLIENTS) == pytest.approx(value / sum(values), abs=0.01)


def test_a_small_change_of_weight_moves_few_clients() -> None:
    """A tenth more weight moves clients to that candidate alone, as many as its share grows by."""
    before, after = _assign(_weights(1, 1, 1, 1)), _assign(_weights(1.1, 1, 1, 1))
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {NAMES[0]}
    assert len(moved) / len(CLIENTS) == pytest.approx(1.1 / 4.1 - 1 / 4, abs=0.005)


def test_only_the_clients_of_a_lost_candidate_move() -> None:
    """Without one candidate its clients spread over the others by weight; everybody else stays."""
    weights = _weights(1, 2, 3, 4)
    before = _assign(weights)
    del weights["eu-west"]
    after = _assign(weights)
    assert all(new == old for old, new in zip(before, after, strict=True) if old != "eu-west")
    moved = [new for old, new in zip(before, after, strict=True) if old == "eu-west"]
    for name, weight in weights.items():
        assert moved.count(name) / len(moved) == pytest.approx(weight / 8, abs=0.03)


def test_neither_scale_nor_order_of_candidates_matters() -> None:
    """Weights count relative to one another, and candidates by name, not by place."""
    plain = _assign(_weights(4, 3, 2, 1))
    assert _assign(_weights(0.4, 0.3, 0.2, 0.1)) == plain
    assert _assign(dict(reversed(_weights(4, 3, 2, 1).items()))) == plain


def test_hashes_are_the_same_in_every_process() -> None:
    """Fixed values: another edge, or the same after an upgrade, sends a client to the same region."""
    assert key_hash("192.0.2.0/24") == 0x4C526E82926B3DEB
    assert key_hash("") != key_hash("\0")
    assert key_hash("\udc80") == key_hash("\udc80")
    picked = [rendezvous(client, HASHES, (1, 2, 3, 4)) for client in CLIENTS[:12]]
    assert picked == [2, 3, 2, 2, 2, 3, 1, 3, 0, 2, 0, 3]


def test_extreme_weights_still_give_an_answer() -> None:
    """Weights at the ends of what floats can hold name one of the candidates."""
    assert rendezvous(CLIENTS[0], HASHES[:2], (5e-324, 5e-324)) in (0, 1)
    assert rendezvous(CLIENTS[0], HASHES[:2], (1e300, 5e-324)) == 0
