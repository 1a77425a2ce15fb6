"""The fence, and what is usable inside it, told slowly: names and sets, straight from the policy as written.

This is what `gtm.core` is tested against. It shares no code with it but the values.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gtm.core.countries import COUNTRIES
from gtm.core.model import (
    AdminState,
    HealthStatus,
    Jurisdiction,
    OnUnusable,
    Places,
    Policy,
    Region,
    Request,
    ResidencyRule,
    RuleMode,
    Service,
)
from gtm.core.state import State
from gtm.core.view import Window


class Reference:
    """A policy in a state, at a time, with the jurisdictions it was written against."""

    def __init__(
        self, policy: Policy, shipped: tuple[Jurisdiction, ...], state: State, window: Window
    ) -> None:
        self.policy, self.state, self.window = policy, state, window
        self.jurisdictions = {item.name: item for item in (*shipped, *policy.jurisdictions)}

    def covers(self, place: str, country: str) -> bool:
        """Whether a country lies in a place: is it, or belongs to one of its members."""
        if place in self.jurisdictions:
            return any(self.covers(member, country) for member in self.jurisdictions[place].members)
        return place == country

    def within(self, places: Places, region: Region) -> bool:
        """Whether a region is among some places."""
        return region.name in places.regions or any(
            self.covers(place, region.country) for place in places.jurisdictions
        )

    def permits(self, rule: ResidencyRule, region: Region) -> bool:
        """Whether a rule lets a region serve those it concerns."""
        unlimited = not rule.allow.regions and not rule.allow.jurisdictions
        return (unlimited or self.within(rule.allow, region)) and not self.within(rule.deny, region)

    def in_force(self, rule: ResidencyRule) -> bool:
        """Whether a rule binds at some moment from the clock's reading to the highest it ever showed."""
        begun = rule.effective_from is None or rule.effective_from <= datetime.fromtimestamp(
            self.window.latest, UTC
        )
        over = rule.effective_until is not None and rule.effective_until <= datetime.fromtimestamp(
            self.window.now, UTC
        )
        return begun and not over

    def concerns(self, rule: ResidencyRule, request: Request) -> bool:
        """Whether a rule is about a request. What the request does not say is taken to be what the rule is about."""
        match, country = rule.match, request.location.country
        if match.services and request.service not in match.services:
            return False
        if match.tenants and request.tenant is not None and request.tenant not in match.tenants:
            return False
        stated = request.data_class is not None
        if match.data_classes and stated and request.data_class not in match.data_classes:
            return False
        clients = (*match.client_countries, *match.client_jurisdictions)
        if not clients or country not in COUNTRIES:
            return True
        return any(self.covers(place, country) for place in clients)

    def matched(self, request: Request) -> list[ResidencyRule]:
        """The rules in force that are about a request, monitoring ones too."""
        return [
            rule
            for rule in self.policy.residency_rules
            if self.in_force(rule) and self.concerns(rule, request)
        ]

    def service(self, request: Request) -> Service:
        """The service asked for."""
        return next(service for service in self.policy.services if service.name == request.service)

    def members(self, request: Request) -> list[Region]:
        """The regions of the service asked for."""
        names = {member.region for member in self.service(request).members}
        return [region for region in self.policy.regions if region.name in names]

    def fence(self, request: Request) -> set[str]:
        """The regions that the law lets serve a request."""
        binding = [rule for rule in self.matched(request) if rule.mode is RuleMode.ENFORCE]
        return {
            region.name
            for region in self.members(request)
            if all(self.permits(rule, region) for rule in binding)
        }

    def willing(self, request: Request) -> set[str]:
        """The members that take new clients and have the models asked for, healthy or not."""
        wanted = {self.service(request).model, request.model} - {None}
        return {
            region.name
            for region in self.members(request)
            if region.admin_state is AdminState.ACTIVE and wanted <= set(region.models)
        }

    def healthy(self, region: str) -> bool:
        """Whether some endpoint of a region is up."""
        return any(item.status is HealthStatus.UP for item in self.state.health.get(region, {}).values())

    def usable(self, request: Request) -> set[str]:
        """The members that could serve if there were no law."""
        return {region for region in self.willing(request) if self.healthy(region)}

    def eligible(self, request: Request) -> set[str]:
        """The regions that may be named in answer to a request."""
        usable = self.fence(request) & self.usable(request)
        if not usable and self.service(request).on_unusable is OnUnusable.IGNORE_HEALTH:
            return self.fence(request) & self.willing(request)
        return usable
