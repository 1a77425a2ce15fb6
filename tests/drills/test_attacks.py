"""Every known attack on the two promises (`python -m tests.drills.attack` prints them as a table)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drills.arena import Arena, Attack
from tests.drills.attack import known

pytestmark = [pytest.mark.drill, pytest.mark.system]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """The systems that the attacks share, and those of one attack."""
    directory = tmp_path_factory.mktemp("attacks")
    directory.chmod(0o755)  # an embedded Postgres that root starts runs as another user
    shared = Arena(directory)
    yield shared
    shared.close()


@pytest.mark.parametrize("attack", known(), ids=lambda attack: f"{attack.item}-{attack.title[:40]}")
def test_a_promise_holds(attack: Attack, arena: Arena) -> None:
    """An attack that it does not hold against raises `Broken`, with what was seen."""
    assert attack.run(arena)
