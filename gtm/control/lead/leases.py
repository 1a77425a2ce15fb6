"""Leases of quotas to edges, by the one control process that is active.

Laws:
  1. Whoever takes the lock anew begins with empty books, and counts everything as leased by another until that other has
     noticed that it lost the lock (`FENCE`).
  2. Whoever has lost the lock and not noticed yet leases nobody what an edge held that it no longer hears: the other may hear
     it, and lets it go on. Leases end in the books no sooner than the lock was last seen to be held (`Election.sure`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from gtm.control.lead.election import FENCE, Election, Standing
from gtm.core.quota.leases import LeaseGrant, LeaseUse
from gtm.core.quota.ledger import PROOF, LeaseLedger
from gtm.core.quota.names import QuotaText

logger = logging.getLogger(__name__)


class Leases:
    """The ledger of one control process, begun anew with each of its terms.

    Args:
        election: this process's part among several.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(
        self, election: Election, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._election = election
        self._clock = clock
        self._monotonic = monotonic
        self._term = election.terms
        self._ledger = self._begin(FENCE if election.terms else 0.0)

    def answer(
        self,
        edge: str,
        use: LeaseUse | None,
        now: float,
        *,
        owner: str = "",
        concerned: Collection[QuotaText] | None = None,
    ) -> LeaseGrant | None:
        """What an edge holds from now on; None if it asks for nothing, or this process may lease nothing.

        Args:
            edge: its name.
            use: what it reports of its leases.
            now: monotonic seconds.
            owner: the name of its token; empty: it has one of its own.
            concerned: the quotas that it may hold; None: all.
        """
        if use is None or self._election.standing is not Standing.ACTIVE:
            return None
        ledger = self._current(now)
        whose = owner or edge
        before = ledger.withdrawn[whose]
        grant = ledger.answer(edge, use, now, owner=owner, concerned=concerned)
        count = ledger.withdrawn[whose]
        if count > before and not count & before:  # the 1st, 2nd, 4th, 8th … time
            logger.warning(
                "`%s` has not taken what it was leased for %d s (token `%s`, for the %d. time): its leases of quotas are withdrawn, and "
                "it may begin anew; if it is one of yours, look at its workers, else revoke its token",
                edge,
                PROOF,
                whose,
                count,
            )
        return grant

    def apportion(self, rates: Mapping[QuotaText, float]) -> None:
        """Divide what edges may spend of each quota, in requests per second, among them."""
        now = self._monotonic()
        self._current(now).apportion(rates, now)

    def _current(self, now: float) -> LeaseLedger:
        if self._election.terms != self._term:
            self._term = self._election.terms
            self._ledger = self._begin(FENCE)
        self._ledger.horizon = self._election.sure(now)
        return self._ledger

    def _begin(self, wait: float) -> LeaseLedger:
        return LeaseLedger(self._monotonic() + wait, int(self._clock() * 1000))
