"""Decisions at the speed of a dictionary: `decide` with its first half remembered for one View.

Law: a Router answers exactly what `decide` answers. It belongs to one View, and goes when the View goes.
"""

from __future__ import annotations

from gtm.core.decide import Choice, Decision, choice, pick
from gtm.core.model import Location, Request
from gtm.core.view import View

CANDIDATES = 1_000_000
"""How many candidates all remembered choices may hold together: some 150 MB."""

_Key = tuple[str, str | None, float | None, float | None, str | None, str | None, str | None]


class Router:
    """The cached form of `decide` for one View.

    Args:
        view: what to decide from.
        limit: how many kinds of request are remembered, fewer where services have many members; past it the memory
            starts anew, so that hostile traffic cannot grow it.
    """

    __slots__ = ("_choices", "limit", "view")

    def __init__(self, view: View, limit: int = 65_536) -> None:
        self.view = view
        most = max((len(service.members) for service in view.snapshot.services.values()), default=1)
        self.limit = max(1, min(limit, CANDIDATES // max(1, most)))
        self._choices: dict[_Key, Choice] = {}

    def choice(
        self,
        service: str,
        location: Location,
        tenant: str | None = None,
        data_class: str | None = None,
        model: str | None = None,
    ) -> Choice:
        """The choice for one kind of request: what ranking and rules look at, and nothing else.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        key = (service, location.country, location.lat, location.lon, tenant, data_class, model)
        found = self._choices.get(key)
        if found is None:
            found = choice(self.view, Request(service, location, tenant, data_class, model))
            if len(self._choices) >= self.limit:
                self._choices = {}
            self._choices[key] = found
        return found

    def decide(self, request: Request, draw: float) -> Decision:
        """As `gtm.core.decide.decide`, from memory where it can.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        found = self.choice(
            request.service, request.location, request.tenant, request.data_class, request.model
        )
        return pick(found, request, draw)
