"""Prometheus' text format, as samples; read by prometheus-client's parser, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from prometheus_client.parser import text_string_to_metric_families

MAX_BYTES = 2 * 1024 * 1024
"""Of an answer that is read; a vLLM server with many models says some hundred kilobytes."""
MAX_LINE = 16 * 1024
"""Bytes of a line: the parser's time grows with the square of its length."""
_SHOWN = 120


class MetricsError(Exception):
    """What a server answered is not what it should be; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a series, told apart by its labels, and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(text: str) -> list[Sample]:
    """The samples of a text, without those that are no number (NaN, infinite). Buckets of histograms are left out.

    Counters keep the names they have in the text, with or without `_total`.

    Raises:
        MetricsError: the text is too long, or not in this format.
    """
    if len(text) > MAX_BYTES:
        raise MetricsError(f"the metrics are longer than the {MAX_BYTES} bytes that are read")
    if max(map(len, text.split("\n"))) > MAX_LINE:
        raise MetricsError(f"the metrics have a line that is longer than the {MAX_LINE} bytes that are read")
    found = []
    try:
        for family in text_string_to_metric_families(text):
            found += [
                Sample(sample.name, sample.labels, float(sample.value))
                for sample in family.samples
                if "le" not in sample.labels and isfinite(sample.value)
            ]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise MetricsError(
            f"these are no metrics in Prometheus' text format: {_printable(str(error)[:_SHOWN])}"
        ) from error
    return found


def _printable(text: str) -> str:
    """What a server sent, as a log can show it."""
    return "".join(one if one.isprintable() else "?" for one in text)


class Samples:
    """Samples by name, of the series that carry some labels.

    Args:
        samples: of one server.
        labels: those that series must carry; one that a series does not have at all excludes it too.
    """

    def __init__(self, samples: Iterable[Sample], labels: Mapping[str, str] | None = None) -> None:
        self._wanted = dict(labels or {})
        self._by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            self._by_name.setdefault(sample.name, []).append(sample)

    def all(self, *names: str, **labels: str) -> list[Sample]:
        """The series of the first name that has any. The parser gives counters without `_total` that suffix."""
        for name in names:
            for spelt in (name, f"{name}_total"):
                found = [
                    sample
                    for sample in self._by_name.get(spelt, ())
                    if all(
                        sample.labels.get(key) == value for key, value in {**self._wanted, **labels}.items()
                    )
                ]
                if found:
                    return found
        return []

    def total(self, *names: str, **labels: str) -> float | None:
        """The sum over the series of the first name that has any; None: there are none."""
        found = self.all(*names, **labels)
        return sum(sample.value for sample in found) if found else None

    def largest(self, *names: str, **labels: str) -> float | None:
        """The largest likewise."""
        found = self.all(*names, **labels)
        return max(sample.value for sample in found) if found else None
