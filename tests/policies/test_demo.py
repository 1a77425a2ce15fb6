"""The demo policy does what its expected decisions say."""

from __future__ import annotations

from pathlib import Path

from gtm.documents.check import check_folder
from gtm.geoip.reader import Locator

DEMO = Path(__file__).parents[2] / "policies" / "demo"
NOW = 1_800_000_000.0


def test_every_expected_decision_holds() -> None:
    """`policies/demo` has no problem, and every one of its expected decisions comes true."""
    report = check_folder(DEMO, Locator().locate, NOW)
    assert [str(problem) for problem in report.problems] == []
    assert [(r.label, r.expected, r.got, r.why) for r in report.results if not r.passed] == []
    assert report.ok
    assert len(report.results) >= 25


def test_a_wrong_expectation_fails_with_an_explanation(tmp_path: Path) -> None:
    """An expectation that does not come true says what was decided, and why."""
    for file in DEMO.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "expect.yaml").write_text(
        "expectations: [{service: chat, country: DE, lat: 52.5, lon: 13.4, region: us-east}]"
    )
    report = check_folder(tmp_path, Locator().locate, NOW)
    assert not report.ok
    (result,) = report.results
    assert result.got == "eu-central; because lowest_latency; rules: gdpr-chat"
    assert any("us-east: excluded by residency rule gdpr-chat" in line for line in result.why)


def test_a_misspelt_region_in_an_expectation_is_a_problem(tmp_path: Path) -> None:
    """An expectation about a region that does not exist would never fail."""
    for file in DEMO.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "expect.yaml").write_text(
        "expectations: [{service: chat, down: [eu-centrall], region: eu-west}]"
    )
    (problem,) = check_folder(tmp_path, Locator().locate, NOW).problems
    assert str(problem).endswith("expectations[0].down: there is no region `eu-centrall`")
