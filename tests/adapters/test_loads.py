"""What model servers say of their load beside their metrics: ORCA's header, lists of models, LoRA adapters."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.adapters.exposition import MAX_BYTES, MetricsError
from gtm.adapters.listing import MAX_LIST, Listed, read_list
from gtm.adapters.orca import MAX_ENTRIES, MAX_HEADER, read_orca
from gtm.adapters.scrape import signals
from gtm.adapters.servers import LINES, ServerType, load_lines, read_server, recognised
from gtm.core.capacity.load import MAX_MODELS, SIGNALS
from gtm.demo.backend.meters import Reading, orca_header
from tests.adapters import texts
from tests.effort import examples


@pytest.mark.parametrize(
    "header",
    [
        "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3",
        "TEXT named_metrics.kv_cache_usage_perc:0.4,named_metrics.vllm:num_requests_waiting=3.0,cpu_utilization=0.9",
        'JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3}}',
        'JSON {"cpuUtilization": 0.3, "namedMetrics": {"kv_cache_utilization": 0.4, "num_requests_waiting": 3, "x": 1}}',
    ],
)
def test_both_forms_of_the_header(header: str) -> None:
    """As vLLM writes it, and as Envoy reads it."""
    assert read_orca(header) == {"kv_cache_usage": 0.4, "queue": 3.0}


def report() -> Any:
    """`xds.data.orca.v3.OrcaLoadReport`, in protobuf's own words (cncf/xds, `xds/data/orca/v3/orca_load_report.proto`)."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="test", syntax="proto3")
    message = file.message_type.add(name="OrcaLoadReport")
    for number, name in ((1, "cpu_utilization"), (6, "rps_fractional"), (7, "eps")):
        message.field.add(name=name, number=number, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="rps", number=3, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    for number, name in ((4, "RequestCost"), (8, "NamedMetrics")):
        entry = message.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL)
        of = f".test.OrcaLoadReport.{name}Entry"
        field = {"RequestCost": "request_cost", "NamedMetrics": "named_metrics"}[name]
        message.field.add(
            name=field, number=number, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED, type_name=of
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.OrcaLoadReport"))


REPORT = report()


@given(
    st.dictionaries(
        st.sampled_from(
            ["kv_cache_usage_perc", "num_requests_waiting", "other", "vllm:num_requests_running"]
        ),
        st.floats(0, 1),
    ),
    st.floats(0, 1e6),
    st.integers(0, 2**64 - 1),
)
def test_the_binary_form(named: dict[str, float], rate: float, rps: int) -> None:
    """What protobuf writes is read as the same in JSON is."""
    written = REPORT(named_metrics=named, rps_fractional=rate, rps=rps, request_cost={"a": 1.0})
    text = json.dumps({"named_metrics": named, **({"rps_fractional": rate} if rate else {})})
    assert read_orca("BIN " + b64encode(written.SerializeToString()).decode()) == read_orca(f"JSON {text}")


@given(st.binary(max_size=60))
def test_damaged_bytes_are_errors_or_signals(message: bytes) -> None:
    """And what is read of them, protobuf's own reader reads too, if it reads them at all."""
    with suppress(MetricsError):
        found = read_orca("BIN " + b64encode(message).decode())
        assert found.keys() <= SIGNALS.keys()
        assert all(isfinite(value) and 0 <= value <= SIGNALS[name] for name, value in found.items())


def test_all_signals_of_the_header() -> None:
    """Requests per second are a field of ORCA's own; of two that say one thing, the first counts."""
    said = {"num_requests_running": 5, "kv_cache_usage_perc": 0.5, "gpu_cache_usage_perc": 0.7}
    assert read_orca("JSON " + json.dumps({"rps_fractional": 2.5, "eps": 1, "named_metrics": said})) == {
        "requests_per_second": 2.5,
        "outstanding": 5.0,
        "kv_cache_usage": 0.5,
    }


@pytest.mark.parametrize("value", ["-1", "1.01", "1e400"])
def test_numbers_out_of_range_are_left_out(value: str) -> None:
    """Unknown, and the others of the header count."""
    header = f"TEXT named_metrics.kv_cache_usage_perc={value}, named_metrics.num_requests_waiting=3"
    assert read_orca(header) == {"queue": 3.0}


@pytest.mark.parametrize(
    "header",
    [
        "",
        "TEXT",
        "TEXT ",
        "TEXT a",
        "TEXT a=",
        "TEXT a=1,",
        "TEXT a=1 b=2",
        "TEXT a=0x10",
        "TEXT a=1.2.3",
        "TEXT a=nan",
        "BIN CgkJAAAAAAAA4D8",
        "BIN Q",
        "BIN MQAAAAAAAAA=",
        "BIN CwA=",
        "BIN AAA=",
        "BIN gICAgICAgICAgAEA",
        "BIN " + b64encode(b"\x42\x03\x0a\x01a" * (MAX_ENTRIES + 1)).decode(),
        "BIN " + b64encode(b"\x42\x03\x0a\x01\xff").decode(),
        "JSON",
        "JSON {",
        "JSON []",
        'JSON {"named_metrics": {"a": "1"}}',
        'JSON {"named_metrics": [1]}',
        "text a=1",
        "cpu_utilization=0.5",
        "TEXT " + "a=1," * MAX_ENTRIES + "a=1",
        "JSON " + json.dumps({"named_metrics": {f"a{number}": 1 for number in range(MAX_ENTRIES + 1)}}),
        "TEXT a=" + "1" * MAX_HEADER,
        "TEXT a=1" + " " * MAX_HEADER,
    ],
)
def test_what_is_no_such_header(header: str) -> None:
    """An error that names the header."""
    with pytest.raises(MetricsError, match="endpoint-load-metrics"):
        read_orca(header)


_SAID = st.text('TEXJSON {}[]":=,.0123456789eE+-namedmetrics_kvcachewaiting', max_size=200)


@given(
    _SAID | st.text(max_size=200) | st.builds("TEXT {}".format, _SAID) | st.builds("JSON {}".format, _SAID)
)
def test_damaged_headers_are_errors_or_signals(header: str) -> None:
    """Whatever a server answers."""
    with suppress(MetricsError):
        found = read_orca(header)
        assert found.keys() <= SIGNALS.keys()
        assert all(isfinite(value) and 0 <= value <= SIGNALS[name] for name, value in found.items())


@given(
    st.dictionaries(
        st.text(max_size=20),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
            max_leaves=8,
        ),
        max_size=8,
    )
)
def test_any_json_is_an_error_or_signals(said: dict[str, object]) -> None:
    """Likewise."""
    for document in (said, {"named_metrics": said}):
        with suppress(MetricsError):
            assert read_orca("JSON " + json.dumps(document)).keys() <= SIGNALS.keys()


@pytest.mark.parametrize("form", ["TEXT", "JSON"])
def test_the_simulated_server_says_the_same_in_both(form: str) -> None:
    """What `gtm demo backend` writes is read."""
    header = orca_header(form, Reading(0.0, {}, {}, 0.25, 100, 4, (), ()))
    assert header is not None
    assert read_orca(header) == {"kv_cache_usage": 0.25, "queue": 0.0}


def test_lists_of_models() -> None:
    """LoRA adapters are those with a parent; names that are none are left out."""
    cards = [
        {"id": "llama", "object": "model", "parent": None, "max_model_len": 8192},
        {"id": "meta/llama-3", "parent": None},
        {"id": "sql", "parent": "llama"},
        {"id": "no name"},
        {"id": ""},
    ]
    body = json.dumps({"object": "list", "data": cards}).encode()
    assert read_list(body) == Listed(frozenset(("llama", "meta/llama-3")), frozenset(("sql",)))
    real = (Path(__file__).parent / "vllm" / "models.json").read_bytes()  # of vLLM 0.32.0
    assert read_list(real) == Listed(frozenset({"demo"}), frozenset())
    assert read_list(b'{"data": []}') == Listed(frozenset(), frozenset())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"data": {}}',
        b'{"data": [{"name": "x"}]}',
        b'{"data": [{"id": 1}]}',
        b'{"data": [{"id": "\xff"}]}',
        b"[" * 10_000,
        b'{"data": []}' + b" " * MAX_LIST,
        json.dumps({"data": [{"id": "x"}] * (MAX_MODELS + 1)}).encode(),
    ],
)
def test_what_is_no_list_of_models(body: bytes) -> None:
    """An error that says so."""
    with pytest.raises(MetricsError, match="list"):
        read_list(body)


@given(st.binary(max_size=200))
def test_damaged_lists_are_errors_or_lists(body: bytes) -> None:
    """Whatever a server answers."""
    with suppress(MetricsError):
        read_list(body)


@pytest.mark.parametrize(
    ("server_type", "text"),
    [
        (ServerType.VLLM, texts.VLLM),
        (ServerType.SGLANG, texts.SGLANG),
        (ServerType.TGI, texts.TGI),
        (ServerType.TRITON, texts.TRITON),
    ],
)
def test_few_lines_say_the_same_load(server_type: ServerType, text: str) -> None:
    """The server is known by its text, and its load is that of the whole text."""
    assert recognised(text) is server_type
    first, second = text % texts.EARLIER, text % texts.LATER
    whole, lines = (
        [read_server(server_type, one, at) for one, at in ((read(first), 10.0), (read(second), 14.0))]
        for read in (str, lambda text: load_lines(server_type, text))
    )
    for name in ("outstanding", "queue", "kv_cache_usage", "gpu_memory_used_bytes", "gpu_memory_total_bytes"):
        assert signals(*lines).get(name) == signals(*whole).get(name)
    assert [one.models for one in lines] == [one.models for one in whole]
    assert len(load_lines(server_type, first)) < len(first)


def test_what_is_not_recognised() -> None:
    """Other metrics are of no model server; text that is too long is an error."""
    assert recognised("process_open_fds 12\n# vllm:x\n") is None
    with pytest.raises(MetricsError, match="longer"):
        load_lines(ServerType.VLLM, "x" * (MAX_BYTES + 1))
    assert load_lines(ServerType.HAPROXY, "a 1\n") == "a 1\n"


def test_adapters_are_those_of_the_newest_series() -> None:
    """A series is kept by vLLM for each list of adapters that there was; its value says when it was."""
    text = """\
vllm:num_requests_running{model_name="llama"} 1
vllm:num_requests_waiting{model_name="llama"} 1
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.1e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="x"} 1.3e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.2e+09
"""
    assert read_server(ServerType.VLLM, load_lines(ServerType.VLLM, text), 0.0).adapters == ("chat", "sql")
    assert read_server(ServerType.VLLM, texts.VLLM % texts.EARLIER, 0.0).adapters is None


@pytest.mark.parametrize(
    ("server_type", "lines", "tokens"),
    [
        (ServerType.VLLM, 'vllm:cache_config_info{block_size="16",num_gpu_blocks="573",engine="0"} 1', 9168),
        (
            ServerType.VLLM,
            (
                'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="0"} 1\n'
                'vllm:cache_config_info{block_size="32",num_gpu_blocks="100",engine="1"} 1'
            ),
            4800,
        ),
        (ServerType.VLLM, 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1', None),
        (ServerType.VLLM, 'vllm:cache_config_info{num_gpu_blocks="9999999999999999"} 1', None),
        (ServerType.VLLM, "", None),
        (ServerType.SGLANG, 'sglang:max_total_num_tokens{model_name="llama"} 471258', 471258),
        (ServerType.SGLANG, "", None),
    ],
)
def test_how_much_a_cache_holds(server_type: ServerType, lines: str, tokens: int | None) -> None:
    """Of all engines together, as they say it in their metrics; what is no number is unknown."""
    assert read_server(server_type, load_lines(server_type, lines), 0.0).cache_tokens == tokens


@given(
    st.lists(
        st.sampled_from(
            (
                "",
                "vllm:",
                "vllm:num_requests_running",
                "vllm:num_requests_running_x",
                "vllm:kv_cache_usage_perc",
                "#",
                " vllm:num_requests_running",
            )
        ).flatmap(lambda begin: st.sampled_from(("", " 1", '{a="b"} 2', "{")).map(lambda rest: begin + rest)),
        max_size=30,
    )
)
@settings(max_examples=examples(500), deadline=None)
def test_the_lines_that_say_load_are_those_that_begin_so(lines: list[str]) -> None:
    """In their order, each once, whatever stands between; the model is the definition."""
    text = "\n".join(lines)
    begins = LINES[ServerType.VLLM]
    wanted = [line for line in text.split("\n") if line.startswith(begins)]
    assert load_lines(ServerType.VLLM, text) == "\n".join(wanted) + "\n"


def test_lines_that_say_nothing_cost_nothing_each() -> None:
    """Eight MB of line ends are no eight million steps: all that is done for each line is done by one search."""
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    text = "vllm:\n" + "\n" * (MAX_BYTES - 20)
    sys.setprofile(count)
    try:
        found = load_lines(ServerType.VLLM, text)
    finally:
        sys.setprofile(None)
    assert (found, steps < 200) == ("\n", True)


@pytest.mark.parametrize(
    ("ranks", "seen"),
    [
        ([{"tp_rank": 0}, {"tp_rank": 1}], (3.0, 1.0, 0.1, 100.0)),
        ([{"dp_rank": 0, "tp_rank": 0}, {"dp_rank": 1, "tp_rank": 0}], (6.0, 2.0, 0.2, 200.0)),
        ([{"dp_rank": n, "tp_rank": n, "pp_rank": 0} for n in range(4)], (12.0, 4.0, 0.4, 400.0)),
        ([{"dp_rank": n // 2, "tp_rank": n} for n in range(8, 12)], (6.0, 2.0, 0.3, 200.0)),
        ([{"tp_rank": 0, "pp_rank": 0}, {"tp_rank": 0, "pp_rank": 1}], (3.0, 1.0, 0.1, 100.0)),
        ([{}], (3.0, 1.0, 0.1, 100.0)),
    ],
    ids=["tensor", "data", "dp-attention", "dp-attention, two ranks each", "pipeline", "none"],
)
def test_each_of_sglangs_engines_counts_once(
    ranks: list[dict[str, int]], seen: tuple[float, float, float, float]
) -> None:
    """With data-parallel attention 3 of 12 requests were seen, and the emptiest cache for the fullest; with two pipeline ranks 6 requests for 3."""
    lines: list[str] = []
    for number, rank in enumerate(ranks, 1):
        labels = ",".join(f'{name}="{value}"' for name, value in {"model_name": "m", **rank}.items())
        said = {
            "num_running_reqs": 3,
            "num_queue_reqs": 1,
            "token_usage": number / 10,
            "max_total_num_tokens": 100,
        }
        lines += [f"sglang:{name}{{{labels}}} {value}" for name, value in said.items()]
    found = read_server(ServerType.SGLANG, "\n".join(lines) + "\n", 1.0)
    gauges = found.gauges
    assert (gauges["outstanding"], gauges["queue"], gauges["kv_cache_usage"], found.cache_tokens) == seen
