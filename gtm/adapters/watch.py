"""Servers looked at again and again: what is reported of each, and what changed that somebody should be told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import httpx

from gtm.adapters.exposition import MAX_BYTES, MetricsError
from gtm.adapters.scrape import Scrape, signals
from gtm.adapters.servers import Series, ServerType, read_server

_AT_ONCE = 16
PATIENCE = 10.0
"""Seconds that a whole answer may take: all servers wait for the slowest."""


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One server: what it is, and where its metrics are. `source` is the reporter's name in load reports."""

    server_type: ServerType
    url: str

    @property
    def source(self) -> str:
        """Host and port, which tell servers of one region apart."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def shown(self) -> str:
        """The URL without the password that may be in it, for messages."""
        return urlunsplit(urlsplit(self.url)._replace(netloc=self.source, query=""))


@dataclass(frozen=True, slots=True)
class Fixed:
    """What somebody says of every server because its metrics don't: the region, and what is known of it.

    `limit` is how many requests one server serves at once. `labels` are those that series must carry, `series` those of
    `ServerType.PROMETHEUS`.
    """

    region: str
    service: str | None = None
    limit: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)


class Watch:
    """The servers of a region.

    Args:
        targets: at least one, each once.
        fixed: what is said of all of them.
        client: asks them.
        monotonic: seconds that never step back.
    """

    def __init__(
        self,
        targets: Iterable[ScrapeTarget],
        fixed: Fixed,
        client: httpx.Client,
        monotonic: Callable[[], float],
    ) -> None:
        self.targets = tuple(targets)
        self._fixed = fixed
        self._client = client
        self._monotonic = monotonic
        self._scrapes: dict[ScrapeTarget, Scrape] = {}
        self._said: dict[ScrapeTarget, str] = {}
        self._pool = ThreadPoolExecutor(min(len(self.targets), _AT_ONCE))

    def look(self) -> tuple[list[dict[str, object]], list[str]]:
        """Ask every server once.

        Returns:
            A load report of each that answered with a signal at least (silence is what says that one did not), and what is
            newly wrong or right again, in words.
        """
        reports: list[dict[str, object]] = []
        news: list[str] = []
        for target, found in zip(self.targets, self._pool.map(self._ask, self.targets), strict=True):
            if isinstance(found, str):
                self._scrapes.pop(target, None)
                news += self._tell(target, f"{found}; nothing is reported of it, which counts as silence")
                continue
            known = signals(self._scrapes.get(target), found)
            self._scrapes[target] = found
            if self._fixed.limit is not None:
                known["limit"] = self._fixed.limit
            news += self._tell(target, self._lacking(found, known))
            if known.keys() - {"limit"}:
                reports.append(self._report(target, found, known))
        return reports, news

    def close(self) -> None:
        """Ask nobody any more."""
        self._pool.shutdown(cancel_futures=True)

    def _report(self, target: ScrapeTarget, found: Scrape, known: Mapping[str, float]) -> dict[str, object]:
        report: dict[str, object] = {"region": self._fixed.region, "source": target.source, **known}
        if self._fixed.service is not None:
            report["service"] = self._fixed.service
        if found.models:
            report["models"] = list(found.models)
        return report

    def _lacking(self, found: Scrape, known: Mapping[str, float]) -> str:
        if found.missing:
            return f"its metrics lack {', '.join(found.missing)}: unknown, which is not idle"
        if "limit" not in known:
            return "nothing says how many requests it serves at once: give --limit, or the policy's capacity counts alone"
        return ""

    def _tell(self, target: ScrapeTarget, what: str) -> Iterator[str]:
        before, self._said[target] = self._said.get(target, ""), what
        if what != before:
            yield f"{target.shown}: {what or 'all is read again'}"

    def _ask(self, target: ScrapeTarget) -> Scrape | str:
        """A scrape, or why there is none."""
        end = self._monotonic() + PATIENCE
        try:
            with self._client.stream("GET", target.url) as response:
                if response.status_code != 200:
                    return f"answers with status {response.status_code}"
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        return f"answers with more than {MAX_BYTES} bytes"
                    if self._monotonic() > end:
                        return f"has not answered in full after {PATIENCE:g} s"
            text = body.decode(errors="replace")
            fixed = self._fixed
            return read_server(target.server_type, text, self._monotonic(), fixed.labels, fixed.series)
        except MetricsError as error:
            return str(error)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            said = re.sub(r"^\[Errno -?\d+\] ", "", str(error)).lower()
            return f"cannot be read ({said or type(error).__name__})"
