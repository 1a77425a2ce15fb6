"""The simulated model servers of one region of the demo world."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import NormalDist

from gtm.demo.backend.profile import Profile
from gtm.demo.backend.server import Backend

MODEL = "demo"
STEP_S = 0.025
"""Seconds of a step, whoever shares it: so equal regions serve alike, however full they are."""
MEAN_TOKENS = 15.5
"""Of an answer to the demo's clients. A request waits for half a step on average before its first: 0.4 s in all."""
SPREAD = 0.3
"""The standard deviation of the logarithm of that number: a few answers are long."""
MAX_SLOTS = 10_000
"""The largest number of slots that a region of the demo has."""
_MOST = NormalDist(log(MEAN_TOKENS) - SPREAD**2 / 2, SPREAD)


def profile(slots: int) -> Profile:
    """A server of so many slots, of which no other part is the bottleneck."""
    return Profile(
        max_num_seqs=slots,
        max_num_batched_tokens=4 * MAX_SLOTS,
        step_s=STEP_S,
        step_per_sequence_s=0.0,
        prefill_tokens_per_second=1e6,
        kv_blocks=4 * MAX_SLOTS,
        block_bytes=10**6,
    )


def shared(slots: int, servers: int) -> list[int]:
    """The slots of each of some servers, that together have so many; 0: none is left for it."""
    each, more = divmod(slots, servers)
    return [each + (number < more) for number in range(servers)]


def answer_tokens(place: float) -> int:
    """How long an answer is, given a place (0–1) in the distribution."""
    return max(1, round(exp(_MOST.inv_cdf(min(max(place, 1e-9), 1 - 1e-9)))))


class ModelServers:
    """See above. Belongs to one event loop, in which it is made.

    Args:
        hosts: an address for each, on `port`.
        slots: of all together.
        port: 0: free ones.
    """

    def __init__(self, hosts: Sequence[str], slots: int, port: int) -> None:
        self.slots = shared(slots, len(hosts))
        self._hosts = hosts
        self._port = port
        self._backends = [Backend(profile(max(1, count)), [MODEL]) for count in self.slots]

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address is taken.
        """
        for backend, host in zip(self._backends, self._hosts, strict=True):
            await backend.start(host, self._port)

    def stop(self) -> None:
        """Die: what goes on breaks off."""
        for backend in self._backends:
            backend.stop()

    def resize(self, slots: int) -> None:
        """Have so many slots from now on, all together; what runs goes on."""
        self.slots = shared(slots, len(self._backends))
        for backend, count in zip(self._backends, self.slots, strict=True):
            backend.resize(max(1, count))

    @property
    def urls(self) -> list[str]:
        """The URLs of a region's model servers."""
        return [backend.url for backend in self._backends]
