"""Traffic from CSV files, right and wrong."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.policy.traffic import TrafficDocument, traffic_json
from gtm.core.demand.cells import Cell
from gtm.core.demand.traffic import Traffic, TrafficBuilder
from gtm.core.model.requests import Location
from gtm.core.model.services import Priority
from gtm.documents.traffic_csv import COLUMNS, MAX_PROBLEMS, TrafficError, read_csv
from gtm.geoip.address import parse_address


def locate(address: str) -> Location:
    """Everybody with an address is in Britain."""
    parse_address(address)
    return Location("GB", lat=51.5, lon=-0.1, source="geoip")


def read(text: str) -> Traffic:
    """The traffic of a file."""
    builder = TrafficBuilder(3600.0)
    read_csv("a.csv", io.StringIO(text, newline=""), builder, locate, {"batch": Priority.BATCH})
    return builder.traffic()


def problems(text: str) -> list[str]:
    """What is wrong with a file."""
    with pytest.raises(TrafficError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_lines_become_cells() -> None:
    """Equal kinds of requests are added up; addresses are located, countries have their centres, nothing is unknown."""
    found = read(
        "\ufeffService, count,client,country,lat,lon,tenant,priority\r\n"
        "chat,10,81.2.69.142,,,,,\r\n"
        "chat,5.5,81.2.69.143,,,,,\r\n"
        "\r\n"
        "chat,1,,DE,52.5,13.4,acme,batch\r\n"
        "chat,2,,DE,,,,\r\n"
        'batch,3,,,,,"",\r\n'
    )
    cells = {(Cell.parse(text), count) for text, count in found.whole.counts.items()}
    short = {
        (cell.service, cell.country, cell.lat is None, cell.tenant, cell.priority.value, count)
        for cell, count in cells
    }
    assert short == {
        ("chat", "GB", False, None, "real_time", 15.5),
        ("chat", "DE", False, "acme", "batch", 1.0),
        ("chat", "DE", False, None, "real_time", 2.0),
        ("batch", None, True, None, "batch", 3.0),
    }
    assert (found.whole.seconds, found.peak) == (3600.0, found.whole)


def test_times_tell_the_peak() -> None:
    """Times are RFC 3339 or POSIX seconds; the busiest minute is the peak."""
    found = read(
        "service,count,time\n"
        "chat,1,2026-01-31T12:00:00Z\n"
        "chat,7,2026-01-31T13:01:30+01:00\n"
        "chat,2,1769860980\n"
    )
    assert found.whole.seconds == 240.0
    assert (found.peak.requests, found.peak.seconds) == (7.0, 60.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.csv: line 1: the first line must name the columns"),
        ("service\n", "a.csv: line 1, column `count`: the column is missing"),
        (
            "service,count,colour\n",
            "a.csv: line 1, column `colour`: unknown column; known are service, count",
        ),
        ("service,count,count\n", "a.csv: line 1, column `count`: the column is there twice"),
        ("service,count,lat\n", "a.csv: line 1, column `lat`: `lat` and `lon` need each other"),
        ("service,count\nchat,many\n", "a.csv: line 2, column `count`: `many` is not a number of requests"),
        ("service,count\nchat,nan\n", "a.csv: line 2, column `count`: `nan` is not a number of requests"),
        ("service,count\nchat,-1\n", "a.csv: line 2, column `count`: `-1` is not a number of requests"),
        ("service,count\n,1\n", "a.csv: line 2, column `service`: is empty: say which service"),
        ("service,count\na|b,1\n", "a.csv: line 2, column `service`: `a|b` must be lower-case letters"),
        ("service,count\nchat,1,2\n", "a.csv: line 2: has 3 values for 2 columns"),
        ("service,count,client\nchat,1,1.2.3\n", "a.csv: line 2, column `client`: "),
        ("service,count,country\nchat,1,UK\n", "a.csv: line 2, column `country`: `UK` is not a country code"),
        (
            "service,count,client,country\nchat,1,1.2.3.4,DE\n",
            "column `client`: give either `client` or `country`",
        ),
        (
            "service,count,lat,lon\nchat,1,91,0\n",
            "column `lat`: `91` is not a number of degrees from -90 to 90",
        ),
        ("service,count,lat,lon\nchat,1,9,\n", "column `lat`: `lat` and `lon` need each other"),
        ("service,count,priority\nchat,1,urgent\n", "column `priority`: `urgent` is none of real_time"),
        ("service,count,time\nchat,1,noon\n", "column `time`: `noon` is neither a time with its zone"),
        ("service,count,time\nchat,1,2026-01-31T12:00:00\n", "is neither a time with its zone"),
        ("service,count,time\nchat,1,-5\n", "column `time`: `-5` is no time after 1970"),
        ('service,count\nchat,"1\n', "a.csv: line 2: is not CSV: unexpected end of data"),
    ],
)
def test_wrong_files_say_where(text: str, said: str) -> None:
    """The line, the column, and what is wrong."""
    (found,) = problems(text)
    assert said in found


def test_wrong_lines_are_listed_up_to_a_number() -> None:
    """Several are told at once, but not thousands."""
    assert len(problems("service,count\n" + "chat,x\n" * 5)) == 5
    assert len(problems("service,count\n" + "chat,x\n" * 500)) == MAX_PROBLEMS


def test_text_in_another_encoding() -> None:
    """The line is named at which the file is no UTF-8."""
    lines = io.TextIOWrapper(io.BytesIO(b"service,count\nchat,1\nch\xe4t,1\n"), encoding="utf-8", newline="")
    with pytest.raises(TrafficError, match=r"line \d+: is not UTF-8 text"):
        read_csv("a.csv", lines, TrafficBuilder(1.0), locate, {})


_VALUES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["chat", "1", "-1", "1e999", "DE", "1.2.3.4", "90", "batch", "2026-01-31T12:00:00Z", "\0", '"']
    ),
)


@given(
    header=st.lists(st.one_of(st.sampled_from(COLUMNS), st.text(max_size=4)), max_size=6),
    rows=st.lists(st.lists(_VALUES, max_size=6), max_size=6),
    noise=st.text(max_size=20),
)
def test_any_text_is_traffic_or_an_error(header: list[str], rows: list[list[str]], noise: str) -> None:
    """Nothing but a TrafficError ever comes of a file, and what is accepted survives as a document."""
    text = "\n".join([",".join(header), *(",".join(row) for row in rows), noise])
    try:
        found = read(text)
    except TrafficError:
        return
    if found.whole.seconds <= 1e9:
        document = TrafficDocument.model_validate(traffic_json(found))
        again = document.traffic({})
        assert again.whole.counts == found.whole.counts
        assert again.peak.counts == found.peak.counts
