"""The first questions of every scene are answered as they were recorded; `python -m tests.corpus` asks all."""

from __future__ import annotations

import json

import pytest

from tests import effort

from .__main__ import FILE, hashes
from .answers import SCENES, Scene

BATCHES = 1 if effort.FEW else 2


@pytest.mark.endurance
@pytest.mark.parametrize(("number", "scene"), list(enumerate(SCENES)), ids=[scene.name for scene in SCENES])
def test_answers_are_those_recorded(number: int, scene: Scene) -> None:
    """Byte for byte."""
    recorded = json.loads(FILE.read_text())["hashes"][scene.name][:BATCHES]
    assert hashes(scene, number, BATCHES) == recorded, "see tests/corpus/__init__.py"
