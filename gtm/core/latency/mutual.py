"""What the regions' round trips to each other say about each region, beyond the geographic model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gtm.core.latency.geographic import Parameters, Terminal, model_ms

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class MutualFit:
    """By the regions' numbers: each one's `offsets` in ms; and for pairs, what both offsets leave unexplained.

    `remainders[a][b]` in ms, and `seen[a][b]` 1.0; both 0.0 where the pair was not measured.
    """

    offsets: list[float]
    remainders: list[list[float]]
    seen: list[list[float]]


def fit_mutual(
    names: Sequence[str],
    terminals: Sequence[Terminal],
    mutual: Mapping[str, Mapping[str, float]],
    parameters: Parameters,
) -> MutualFit | None:
    """Split the round trips between regions into an offset of each region and a remainder of each pair.

    A round trip is the same both ways, so the lower of two measurements has the fewer queues in it. A region's offset
    is the median over the others (a median polish: Tukey, "Exploratory Data Analysis", 1977), shrunk toward 0 as by
    one more region that says 0.

    Returns:
        None if no two of the regions were measured.
    """
    measured = _residuals(names, terminals, mutual, parameters)
    if not any(measured):
        return None
    offsets = [0.0] * len(names)
    for _ in range(_ROUNDS):
        offsets = [
            _median([residual - offsets[other] for other, residual in row.items()])
            * len(row)
            / (len(row) + 1)
            if row
            else 0.0
            for row in measured
        ]
    remainders = [[0.0] * len(names) for _ in names]
    seen = [[0.0] * len(names) for _ in names]
    for number, row in enumerate(measured):
        for other, residual in row.items():
            remainders[number][other] = residual - offsets[number] - offsets[other]
            seen[number][other] = 1.0
    return MutualFit(offsets, remainders, seen)


def _residuals(
    names: Sequence[str],
    terminals: Sequence[Terminal],
    mutual: Mapping[str, Mapping[str, float]],
    parameters: Parameters,
) -> list[dict[int, float]]:
    """For each region, the others it shares a measurement with, and how far that is above the model, in ms."""
    numbers = {name: number for number, name in enumerate(names)}
    lowest: dict[tuple[int, int], float] = {}
    for name, others in mutual.items():
        one = numbers.get(name)
        if one is None:
            continue
        for other_name, ms in others.items():
            other = numbers.get(other_name)
            if other is not None and other != one:
                pair = (one, other) if one < other else (other, one)
                lowest[pair] = min(ms, lowest.get(pair, ms))
    residuals: list[dict[int, float]] = [{} for _ in names]
    for (one, other), ms in lowest.items():
        residuals[one][other] = residuals[other][one] = ms - model_ms(
            terminals[one].point, terminals[other], parameters
        )
    return residuals


def _median(values: list[float]) -> float:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
