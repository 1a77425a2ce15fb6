"""docs/choosing.md names every policy, every reason and every setting there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from gtm.core.balance.choosing.values import ChoosingSettings, Pick, Score, Why

PAGE = (Path(__file__).parents[4] / "docs/choosing.md").read_text()


def _listed(heading: str) -> list[str]:
    """The names in the first column of a section's table."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_picks_scores_settings_and_reasons_are_described() -> None:
    """Each in its table, in the order of the code, and no others."""
    assert _listed("Picks") == [pick.value for pick in Pick]
    assert _listed("Scores") == [score.value for score in Score]
    assert _listed("Settings") == [one.name for one in fields(ChoosingSettings)]
    assert _listed("Why none") == [why.value for why in Why]


def test_defaults_are_the_ones_there_are() -> None:
    """The second column of the settings."""
    section = PAGE.partition("\n## Settings\n")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE))
    for one in fields(ChoosingSettings):
        default = getattr(ChoosingSettings(), one.name)
        assert told[one.name].strip() == {True: "on", False: "off", (): "none"}.get(default, str(default))
