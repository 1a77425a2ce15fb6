"""How long what model servers do may take."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from gtm.balancer.config.connections import paths_of
from gtm.balancer.config.document import Document
from gtm.balancer.plane.timeouts import TimeoutRule, TimeoutRules, Timeouts
from gtm.balancer.wire.paths import Paths
from gtm.documents.fields import invalid

_WEEK = 7 * 86400.0
Seconds = Annotated[float, Field(gt=0, le=_WEEK)]


class TimesDocument(Document):
    """Times in seconds. Of the last three `null`: no bound; what is not said is as it would be."""

    connect: Annotated[float, Field(gt=0, le=600)] | None = None
    failing: Seconds | None = None
    first_byte: Seconds | None = None
    between: Seconds | None = None
    whole: Seconds | None = None

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        for name in ("connect", "failing"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise invalid("invalid", f"`{name}` has always a bound: give seconds, or leave it out")
        return self

    def over(self, times: Timeouts) -> Timeouts:
        """These, and of what is not said the given ones."""
        said = self.model_fields_set & set(TimesDocument.model_fields)
        return replace(times, **{name: getattr(self, name) for name in said})


class TimeoutRuleDocument(TimesDocument):
    """Times of requests for a service, and for paths."""

    service: str | None = None
    paths: Annotated[tuple[Annotated[str, Field(max_length=1000)], ...] | None, BeforeValidator(paths_of)] = (
        None
    )

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if self.service is None and self.paths is None:
            raise invalid(
                "invalid", "a rule needs `service` or `paths`: what holds for all stands in `timeouts` itself"
            )
        if not self.model_fields_set & set(TimesDocument.model_fields):
            raise invalid("invalid", "a rule needs a time, such as `whole: 30`")
        return self


class TimeoutsDocument(TimesDocument):
    """Times of all requests, and rules that say others (docs/balancer.md, "Timeouts")."""

    rules: tuple[TimeoutRuleDocument, ...] = Field(default=(), max_length=1000)
    """The first that a request meets counts; what it does not say is as it would be without."""

    def settings(self) -> TimeoutRules:
        """The same for the data plane."""
        default = TimeoutRules()
        inference, others = self.over(default.inference), self.over(default.others)
        rules = []
        for one in self.rules:
            paths = None if one.paths is None else Paths(one.paths)
            rules.append(TimeoutRule(one.service, paths, one.over(inference), one.over(others)))
        return TimeoutRules(inference, others, tuple(rules))
