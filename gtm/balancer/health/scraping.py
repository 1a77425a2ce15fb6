"""What a backend's answers say of its load: metrics, lists of models, headers.

Silence and damage say nothing: what was known becomes stale, and then unknown (`gtm.core.balance.health.monitor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gtm.adapters.exposition import MetricsError
from gtm.adapters.orca import read_orca
from gtm.adapters.scrape import Scrape, signals
from gtm.adapters.servers import ServerType, load_lines, read_server, recognised
from gtm.core.balance.health.values import BackendLoad


@dataclass(slots=True)
class Scraper:
    """One backend's metrics, read again and again. `server_type`: what it is; None: as its metrics say."""

    server_type: ServerType | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    """What was last read, as load reports have it (`gtm.core.capacity.load.SIGNALS`)."""
    _before: Scrape | None = None

    def read(self, body: bytes, at: float) -> BackendLoad:
        """What its metrics say of its load.

        Args:
            body: its answer.
            at: seconds of a clock that never steps back.

        Raises:
            MetricsError: it is no such text, of no server that is known, or says neither what runs nor what waits.
        """
        text = body.decode(errors="replace")
        server_type = self.server_type or recognised(text)
        if server_type is None:
            raise MetricsError(
                "these are metrics of no server that is known (vLLM, SGLang, TGI, Triton): set `server_type`, "
                "or `scrape` to none"
            )
        found = read_server(server_type, load_lines(server_type, text), at)
        known = signals(self._before, found)
        self._before = found
        self.signals = known
        load = load_of(known, found)
        if load.running is None and load.waiting is None and found.missing:
            raise MetricsError(f"its metrics lack {', '.join(found.missing)}")
        return load


def load_of(known: Mapping[str, float], found: Scrape | None = None) -> BackendLoad:
    """Signals as what choosing takes: memory is the KV cache, else the GPU's; what is not there is unknown.

    Args:
        known: signals of load reports (`gtm.core.capacity.load.SIGNALS`).
        found: the scrape that they come from, for names of models and adapters.
    """
    memory = known.get("kv_cache_usage")
    total = known.get("gpu_memory_total_bytes")
    used = known.get("gpu_memory_used_bytes")
    if memory is None and total and used is not None:
        memory = used / total
    models = found.models if found is not None else ()
    adapters = found.adapters if found is not None else None
    return BackendLoad(
        running=known.get("outstanding"),
        waiting=known.get("queue"),
        memory=None if memory is None else min(max(memory, 0.0), 1.0),
        models=frozenset(models) if models else None,
        adapters=None if adapters is None else frozenset(adapters),
        cache_tokens=found.cache_tokens if found is not None else None,
    )


def load_in_header(header: bytes) -> BackendLoad | None:
    """What a response's `endpoint-load-metrics` says; None: nothing that can be read."""
    try:
        known = read_orca(header.decode("latin-1"))
    except MetricsError:
        return None
    return load_of(known) if known else None
