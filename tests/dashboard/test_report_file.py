"""A simulation as a file: it stands alone, escapes what it is given, and opens in a browser with its map drawn."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gtm.client.objects import as_answered
from gtm.control.policy.simulation import simulated_offline
from gtm.core.demand.traffic import TrafficBuilder
from gtm.dashboard.effects import latency_curves, step_of
from gtm.dashboard.report_file import report
from tests.core.simulate.test_simulate import BERLIN, BOSTON, CORK, POLICY, cell, drained, with_slots

_VOID = {"meta", "br", "input"}


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
    """Notes what is opened, what is closed out of order, every address, and what is inline."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.addresses: list[str | None] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "data-land")]
        if tag not in _VOID:
            self.open.append(tag if ("type", "application/json") not in attrs else f"{tag}/json")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop().removesuffix("/json") != tag:
            self.wrong.append(tag)


def checked(text: str) -> None:
    """The page, which has to be well-formed, load nothing, and run what its policy of contents names and nothing else."""
    checker = _Checker()
    checker.feed(text)
    checker.close()
    assert checker.wrong == checker.open == []
    assert checker.addresses == ["", "https://db-ip.com"]
    assert not re.search(r"@import|javascript:|fonts\.g", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    named = re.findall(r"sha256-([A-Za-z0-9+/=]+)", policy[1])
    assert named == [b64encode(sha256(one.encode()).digest()).decode() for one in checker.inline]
    assert "unsafe" not in policy[1]


def test_the_file_stands_alone() -> None:
    """With the map's data in it, tables and the curves."""
    text = report(
        as_answered(simulated()), before="revision 7", after="draft", scenario={"down": ["us"], "demand": 2.0}
    )
    checked(text)
    for said in (
        "Simulation: draft against revision 7",
        "<li>us fails</li>",
        "<li>2 times the requests</li>",
        "Refused: shed",
        "7 requests for <code>typo</code> are left out",
        "prefers-color-scheme: dark",
        'id="land"',
        'class="curves"',
    ):
        assert said in text, said


def test_what_it_is_given_is_escaped() -> None:
    """No name from a policy or a command line becomes markup."""
    evil = '"></script><script>alert(1)</script>'
    data = simulated()
    for region in data["regions"]:
        region["display_name"] = evil
    data["warnings"].append(evil)
    data["countries"][0] |= {"service": evil, "before": "de", "after": "ie"}
    data["average"]["after"]["refused"]["rules"][evil] = 1.0
    data["average"]["moves"].append({"from": evil, "to": evil, "rate": 1.0})
    checked(report(as_answered(data), before=evil, after=evil, scenario={"down": [evil], "at": evil}))


def test_little_is_known() -> None:
    """Without places, capacities or traffic there is a file all the same, which says so."""
    builder = TrafficBuilder(60.0)
    builder.add("chat|||||||real_time||", 10.0)
    for traffic in (builder.traffic(), TrafficBuilder(60.0).traffic()):
        text = report(as_answered(simulated_offline(POLICY, POLICY, traffic, 1_000.0)), before="a", after="b")
        checked(text)
        assert 'class="curves"' not in text
        assert "Nobody would be served elsewhere" in text


@given(most=st.floats(0.001, 1e6))
def test_scales_have_few_round_marks(most: float) -> None:
    """A scale has from two to nine marks."""
    assert 1.5 <= most / step_of(most) <= 8.0001


def test_curves_of_nothing() -> None:
    """None where nobody's place is known; a latency of nothing is drawn all the same."""
    assert latency_curves(None, None) is None
    drawn = latency_curves(as_answered({"quantiles": [0.0] * 101}), None)
    assert drawn is not None
    assert drawn.count("<polyline") == 1
