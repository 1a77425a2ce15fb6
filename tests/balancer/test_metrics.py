"""What may stand in a balancer's metrics: whatever names there are, a line is a line."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gtm.balancer import metrics
from gtm.balancer.metrics import _labels
from tests.effort import examples


@settings(max_examples=examples(1000, 300), deadline=None)
@given(st.text() | st.sampled_from(["\x1b[31m", "a\nb", "\u2028", "\x85", "\ud800", 'q"\\', "<script>\x00"]))
def test_a_label_is_one_line_that_is_read_as_it_is_meant(value: str) -> None:
    """No control character, no line end of any reader's; what is printable is there as it was."""
    line = f"m{_labels({'model': value})} 1"
    assert line.isprintable()
    assert line.splitlines() == [line]
    (family,) = text_string_to_metric_families(line + "\n")
    (sample,) = family.samples
    if value.isprintable():
        assert sample.labels == {"model": value}


def test_the_documents_name_every_metric() -> None:
    """And no other."""
    names = re.findall(r'"(gtm_balancer_\w+)"', Path(metrics.__file__).read_text())
    documented = (Path(__file__).parents[2] / "docs/balancer.md").read_text()
    table = documented.partition("| metric | |")[2].partition("\n\n")[0]
    assert set(names) == set(re.findall(r"`(gtm_balancer_\w+)`", table))
