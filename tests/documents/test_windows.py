"""Files as Windows' programs write them say what they said: a byte order mark, line ends of two characters, UTF-16 of YAML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gtm.core.demand.traffic import TrafficBuilder
from gtm.core.model.requests import Location
from gtm.documents.folders import read_folder
from gtm.documents.traffic_csv import read_csv
from gtm.geoip.overrides import load_overrides

Written = Callable[[str], bytes]
AS_WINDOWS_DOES: dict[str, Written] = {
    "line ends": lambda text: text.replace("\n", "\r\n").encode(),
    "a mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "both": lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
}
POLICY = """regions:
- {name: fra, country: DE, lat: 50.1, lon: 8.7, display_name: "Zürich", endpoints: [{url: "https://fra.example.com"}]}
"""
OVERRIDES = "overrides:\n- network: 203.0.113.0/24\n  country: DE\n- network: 2001:db8::/32\n  country: FR\n"
TRAFFIC = "service,count,country\nchat,5,DE\nchat,7,FR\n"


def _traffic(lines: list[str]) -> tuple[int, object]:
    builder = TrafficBuilder(1.0)
    return read_csv("traffic.csv", lines, builder, lambda _: Location(), {}), builder.traffic()


@pytest.mark.parametrize("written", AS_WINDOWS_DOES.values(), ids=AS_WINDOWS_DOES)
def test_policies_overrides_and_traffic(written: Written, tmp_path: Path) -> None:
    """Each is what the plain file is."""
    plain, theirs = tmp_path / "plain", tmp_path / "theirs"
    for folder, write in ((plain, str.encode), (theirs, written)):
        folder.mkdir()
        (folder / "policy.yaml").write_bytes(write(POLICY))
        (folder / "overrides").write_bytes(write(OVERRIDES))
        (folder / "traffic.csv").write_bytes(write(TRAFFIC))
    assert read_folder(theirs).document() == read_folder(plain).document()
    assert load_overrides(theirs / "overrides") == load_overrides(plain / "overrides")
    read = []
    for folder in (plain, theirs):
        with (folder / "traffic.csv").open(encoding="utf-8", newline="") as lines:
            read.append(_traffic(list(lines)))
    assert read[0] == read[1]


def test_policies_in_utf16(tmp_path: Path) -> None:
    """YAML says by its mark what it is (YAML 1.2 §5.2)."""
    for name, content in (("a", POLICY.encode()), ("b", POLICY.encode("utf-16"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_bytes(content)
    assert read_folder(tmp_path / "a").document() == read_folder(tmp_path / "b").document()
