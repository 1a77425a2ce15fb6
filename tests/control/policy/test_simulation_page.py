"""The page of a simulation: it stands alone, escapes what it is given, and opens in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.policy.charts import _step, colours
from gtm.control.policy.simulation import simulated_offline
from gtm.control.policy.simulation_page import page
from gtm.core.demand.traffic import TrafficBuilder
from tests.core.simulate.test_simulate import BERLIN, BOSTON, CORK, POLICY, cell, drained, with_slots

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_VOID = {"meta", "br"}


def simulated() -> dict[str, Any]:
    """A drain, with spillover, refusals and a peak."""
    builder = TrafficBuilder(60.0)
    for minute in range(3):
        builder.add(BERLIN, 300.0 * (1 + minute), 60.0 * minute)
        builder.add(CORK, 100.0, 60.0 * minute)
        builder.add(BOSTON, 100.0, 60.0 * minute)
    builder.add(cell("DE", 52.5, 13.4, "typo"), 7.0, 0.0)
    before = with_slots(POLICY, de=12, ie=12, us=1)
    return simulated_offline(before, drained(with_slots(before, ie=9), "de"), builder.traffic(), 1_000.0)


class _Checker(HTMLParser):
    """Notes what is opened, what is closed out of order, and every address."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.addresses: list[tuple[str, str | None]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            (name, value) for name, value in attrs if name in ("src", "href", "xlink:href", "action")
        ]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def checked(text: str) -> _Checker:
    """The page, which has to be well-formed and load nothing."""
    checker = _Checker()
    checker.feed(text)
    checker.close()
    assert checker.wrong == checker.open == []
    assert checker.addresses == [("href", "https://db-ip.com")]
    assert not re.search(r"url\(|@import|<script|javascript:", text)
    return checker


def test_the_page_stands_alone() -> None:
    """It has a table beside every chart, is well-formed, and loads nothing from anywhere."""
    text = page(simulated(), before="revision 7", after="draft")
    checker = checked(text)
    assert checker.tags.count("svg") == 5
    assert checker.tags.count("table") >= 6
    assert text.count('role="img" aria-label="') == 5
    for said in (
        "Simulation: draft against revision 7",
        "us → ie",
        "shed",
        "typo",
        "prefers-color-scheme:dark",
    ):
        assert said in text


def test_what_it_is_given_is_escaped() -> None:
    """No name from a policy or a command line becomes markup."""
    evil = '"><script>alert(1)</script>'
    data = simulated()
    for region in data["regions"]:
        region["display_name"] = evil
    data["warnings"].append(evil)
    data["countries"][0] |= {"service": evil, "before": "de", "after": "ie"}
    data["average"]["after"]["refused"]["rules"][evil] = 1.0
    checked(page(data, before=evil, after=evil))


def test_little_is_known() -> None:
    """Without places, capacities or traffic there is a page all the same, which says so."""
    builder = TrafficBuilder(60.0)
    builder.add("chat|||||||real_time||", 10.0)
    for traffic in (builder.traffic(), TrafficBuilder(60.0).traffic()):
        text = page(simulated_offline(POLICY, POLICY, traffic, 1_000.0), before="a", after="b")
        checked(text)
        assert "nothing can be said of latency" in text
        assert "Every country keeps its main region" in text


@given(most=st.floats(0.001, 1e6))
def test_scales_have_few_round_marks(most: float) -> None:
    """A scale has from three to nine marks."""
    assert 1.5 <= most / _step(most) <= 8.0001


def test_regions_have_colours_of_their_own() -> None:
    """Up to two dozen regions are told apart."""
    assert len(set(colours(f"r{number}" for number in range(24)).values())) == 24


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_opens_in_a_browser(tmp_path: Path) -> None:
    """Chromium draws it under its own content policy and without a console message, in light and dark."""
    file = tmp_path / "simulation.html"
    file.write_text(page(simulated(), before="revision 7", after="draft"))
    for scheme in ("0", "1"):
        picture = tmp_path / f"{scheme}.png"
        command = [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--blink-settings=preferredColorScheme={scheme}",
            "--enable-logging=stderr",
            f"--screenshot={picture}",
            file.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert not re.findall(r".*CONSOLE.*", done.stderr)
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "0.png").read_bytes() != (tmp_path / "1.png").read_bytes()
