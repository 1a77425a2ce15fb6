"""What one model server of several can do to clients of the others, and to tenants: it says and does whatever can be said."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

from tests.drills.liars.arena import Arena, Damage
from tests.drills.liars.region import Outcome, Region, ServerLie, Setting, shares

_NUMBERS = ("0", "-1", "1e9", "1e308", "inf", "NaN", "1e-9", "6", "99999999999999999999")


def _page(rng: random.Random) -> str:
    running, waiting = rng.choice(_NUMBERS), rng.choice(_NUMBERS)
    lines = [f"vllm:num_requests_running {running}", f"vllm:num_requests_waiting {waiting}"]
    lines += [f"vllm:gpu_cache_usage_perc {rng.choice(_NUMBERS)}"] * rng.randint(0, 2)
    lines += [
        f'vllm:num_requests_running{{model_name="{number}"}} 1' for number in range(rng.choice((0, 0, 500)))
    ]
    return "\n".join(lines) + "\n"


class ServerArena(Arena[Setting, ServerLie, Outcome]):
    """One server against the others' clients."""

    principal = "model server"
    kinds: ClassVar[Mapping[str, str]] = {"u": "usage", "l": "load, models", "s": "statuses, time"}

    def setting(self, rng: random.Random) -> Setting:
        """A region."""
        return Setting.drawn(rng)

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> ServerLie:  # noqa: ARG002 - the contract
        """A lie with these kinds in it."""
        usage, load, status = (kind in kinds for kind in "uls")
        numbers = (0, 10**3, 10**9 - 1, 10**9, -5, 1e308)
        header = f"TEXT named_metrics.vllm:num_requests_running={rng.choice(_NUMBERS)}"
        header += f",named_metrics.vllm:num_requests_waiting={rng.choice(_NUMBERS)}"
        models = rng.choice(
            (frozenset[str](), frozenset({"other"}), frozenset({f"m{n}" for n in range(5000)}))
        )
        return ServerLie(
            rng.choice((None, 200, 400, 429, 500, 503)) if status else None,
            rng.choice((None, 0.0, 0.001, 5.0, 50.0)) if status else None,
            rng.choice(numbers) if usage else None,
            rng.choice(numbers) if usage else None,
            _page(rng) if load and rng.random() < 0.7 else None,
            header if load and rng.random() < 0.5 else None,
            models if load and rng.random() < 0.5 else None,
        )

    def run(self, setting: Setting, lie: ServerLie | None) -> Outcome:
        """How honest requests end."""
        return Region(setting, lie).play(list(enumerate(setting.calls)))

    def damage(self, setting: Setting, honest: Outcome, lied: Outcome) -> Damage:
        """`taken`: of the other servers those that were taken out. `changed`: what failed at the server that lies."""
        refused, failed = shares(setting, honest, lied)
        return Damage(0, refused, max(0, lied.ejected - honest.ejected) / (setting.servers - 1), failed)
