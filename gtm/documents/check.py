"""Expected decisions: does a policy do what its authors think? Run by `gtm check` and by the tests.

`expect.yaml` beside the policy holds a list `expectations`. Each says who asks (`client` address or subnet, or `country` with
`lat` and `lon`, `anonymous`, `doubtful` and `accuracy_km`, or nothing: unknown), for what (`service`, or a `host` name of it; `tenant`, `data_class`,
`model`; or over DNS for addresses of a `family`), in what state of the world (`down`, `drained` and `disabled` regions; all else is up and active), at what time
(`at`; now, if absent), and what must come of it: `region` (a name, or a list of which each draw must hit one), or
`refused` (`residency` or `unavailable`), with `reason` (see `gtm.core.model.outcomes.Reason`) and `rules` (all that match)
where they matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from gtm.core.decision.decide import Decision, routed
from gtm.core.decision.explain import lines
from gtm.core.decision.view import View, Window, view_of
from gtm.core.findings.report import ERRORS
from gtm.core.model.outcomes import Outcome, Reason, UnknownNameError
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.regions import AddressFamily, AdminState, Region
from gtm.core.model.requests import ContradictionError, Request, agreed
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.documents import fields as f
from gtm.documents.folders import check_references, located, place_of, placed, read_folder, read_yaml
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.places import Client, StatedPlace
from gtm.documents.plausibility import all_findings, errors
from gtm.documents.policy_files import shown
from gtm.documents.resources import Document
from gtm.documents.structure import problems_of
from gtm.geoip.networks import Locate, locate_client


class _Asker(Document):
    """The name of an expectation, and the client that asks."""

    name: f.Line = ""
    client: Client | None = None


class Expectation(StatedPlace, _Asker):
    """One expected decision; see the module's description."""

    service: f.Name | None = None
    host: f.HostName | None = None
    tenant: f.Name | None = None
    data_class: f.Name | None = None
    model: f.ModelName | None = None
    family: AddressFamily | None = None
    down: tuple[f.Name, ...] = ()
    drained: tuple[f.Name, ...] = ()
    disabled: tuple[f.Name, ...] = ()
    at: f.Moment | None = None
    region: f.Name | Annotated[tuple[f.Name, ...], Field(min_length=1)] | None = None
    refused: Literal["residency", "unavailable"] | None = None
    reason: Reason | None = None
    rules: tuple[f.Name, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.region is None) == (self.refused is None):
            raise f.invalid("missing", "needs either `region` or `refused`")
        if self.client is not None and StatedPlace.model_fields.keys() & self.model_fields_set:
            names = "`client` or `country`, `lat`, `lon`, `anonymous`, `doubtful` and `accuracy_km`"
            raise f.invalid("overlap", f"give either {names}")
        if (self.service is None) == (self.host is None):
            raise f.invalid("missing", "needs either `service` or `host`, a host name of it")
        unheard = [name for name in ("tenant", "data_class", "model") if getattr(self, name) is not None]
        if self.family is not None and unheard:
            text = (
                f"`family` asks over DNS, where nobody can state `{'` or `'.join(unheard)}`: leave it out, or give the `host` "
                "that states it"
            )
            raise f.invalid("overlap", text)
        return self

    @property
    def label(self) -> str:
        """The name, or what is asked, in short."""
        who = self.client or self.country or "unknown client"
        what = "/".join(part for part in (self.service or self.host, self.tenant, self.data_class) if part)
        return self.name or f"{who} → {what}{f', {self.family.rrtype}' if self.family else ''}"


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """What became of an expectation. `got` and `why` are sentences; `why` explains the decision, line by line."""

    label: str
    passed: bool
    expected: str
    got: str
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The check of a folder. With problems, no expectation was tried; there are findings where the policy compiles all the same.

    `findings` are what is probably not meant (`gtm.core.findings.report`), among which some are `errors`; `places` has the `FILE:LINE` of
    their paths, as far as a file says what they are about; `warnings` begin with theirs. `not_read` are the files in the folder that were not.
    """

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    results: tuple[ExpectationResult, ...] = ()
    policy: Policy | None = None
    findings: tuple[Problem, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    not_read: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """The same in sentences."""

    @property
    def ok(self) -> bool:
        """Nothing is wrong, no finding is an error, and every expectation holds."""
        wrong = self.problems or self.errors
        return not wrong and all(result.passed for result in self.results)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The findings that clients would lose a service by."""
        return tuple(finding for finding in self.findings if finding.code in ERRORS)


def check_folder(path: Path, locate: Locate, now: float) -> CheckReport:
    """Check a folder of policy files, and the expected decisions beside them if there are any.

    Args:
        path: the folder (or one file).
        locate: where an address is.
        now: POSIX seconds, for findings, and for expectations that name no time.
    """
    folder = read_folder(path)
    files = folder.found
    problems, snapshot = check_references(folder)
    expectations, wrong = _expectations(files.expectations)
    problems += wrong
    report = CheckReport(tuple(problems), not_read=(*files.passed, *files.others), notes=tuple(files.notes()))
    if problems or snapshot is None:
        return report
    refused, policy = errors(snapshot), snapshot.policy
    found = tuple(one for one in all_findings(snapshot, now) if one not in refused)
    places = {one.path: place for one in found if (place := place_of(folder, one.path)) is not None}
    warnings = tuple(placed(folder, one) for one in snapshot.warnings)
    report = replace(report, warnings=warnings, policy=policy, findings=found, places=places)
    if refused:
        return replace(report, problems=tuple(located(folder, one) for one in refused))
    unknown = tuple(_unknown_regions(policy, expectations))
    results = () if unknown else tuple(check(policy, item, locate, now) for _, item in expectations)
    return replace(report, problems=unknown, results=results)


def check(policy: Policy, item: Expectation, locate: Locate, now: float) -> ExpectationResult:
    """Decide an expectation's request under a policy, everything up but what it says is down, and compare."""
    view = _view(policy, item, now)
    try:
        service, tenant, data_class = _asked(view, item)
        location = item.location if item.client is None else locate_client(item.client, locate)
        request = Request(service, location, tenant, data_class, item.model, family=item.family)
        routing = routed(view, request)
    except (UnknownNameError, ContradictionError) as error:
        return ExpectationResult(item.label, passed=False, expected=_expected(item), got=str(error), why=())
    if item.family is not None and not view.snapshot.services[service].service.hostnames:
        got = f"service `{service}` has no host name, so that nobody asks DNS for it: leave `family` out"
        return ExpectationResult(item.label, passed=False, expected=_expected(item), got=got, why=())
    options = routing.choice.options
    first = routing.explained(options[0])
    regions = frozenset(option.region for option in options)
    empty = _empty(policy, regions, item.family)
    return ExpectationResult(
        label=item.label,
        passed=_holds(item, first, regions) and not empty,
        expected=_expected(item),
        got=_got(first, regions) + empty,
        why=tuple(lines(view, request, first)),
    )


def _empty(policy: Policy, regions: frozenset[str | None], family: AddressFamily | None) -> str:
    """What is missing in the answer of some of the regions, where addresses of a family are asked for: who expects a region wants to reach it."""
    if family is None:
        return ""
    empty = [one.name for one in policy.regions if one.name in regions and _without(one, family)]
    return f"; {family.rrtype} is empty where the region chosen is {some(empty, 'regions')}" if empty else ""


def _without(region: Region, family: AddressFamily) -> bool:
    """Whether DNS answers a region's addresses (not its `cname`), and none of a family among them."""
    return any(one.ipv4 or one.ipv6 for one in region.endpoints) and not any(
        one.addresses(family) for one in region.endpoints
    )


def _asked(view: View, item: Expectation) -> tuple[str, str | None, str | None]:
    """The service, tenant and data class that an expectation is about.

    Raises:
        UnknownNameError: no service has the host name.
        ContradictionError: the host name states something else.
    """
    if item.host is None:
        return item.service or "", item.tenant, item.data_class
    host = view.snapshot.host_of(item.host)
    if host is None:
        raise UnknownNameError("host name", item.host)
    return view.snapshot.hostnames[host.name], *agreed(host, item.tenant, item.data_class)


def _expectations(files: list[Path]) -> tuple[list[tuple[str, Expectation]], list[Problem]]:
    """The expected decisions in files, each with where it stands; and what is wrong with others."""
    found: list[tuple[str, Expectation]] = []
    problems: list[Problem] = []
    for file in files:
        marked, wrong = read_yaml(file)
        problems += wrong
        for document, _ in marked:
            items = (
                document.get("expectations") if isinstance(document, dict) and len(document) == 1 else None
            )
            if not isinstance(items, list):
                message = "must be a mapping with a list `expectations` and nothing else"
                problems.append(Problem(shown(file), "wrong_type", message))
                continue
            for index, item in enumerate(items):
                where = f"{shown(file)}: expectations[{index}]"
                try:
                    found.append((where, Expectation.model_validate(item)))
                except ValidationError as error:
                    problems += problems_of(error, prefix=where, model=Expectation)
    return found, problems


def _unknown_regions(policy: Policy, items: list[tuple[str, Expectation]]) -> list[Problem]:
    """A misspelt region would make an expectation about nothing."""
    known = {region.name for region in policy.regions}
    return [
        Problem(f"{where}.{field}", "unknown_reference", f"there is no region `{name}`")
        for where, item in items
        for field, names in (
            ("down", item.down),
            ("drained", item.drained),
            ("disabled", item.disabled),
            ("region", _regions(item)),
        )
        for name in names
        if name not in known
    ]


def _regions(item: Expectation) -> tuple[str, ...]:
    if item.region is None:
        return ()
    return (item.region,) if isinstance(item.region, str) else item.region


def _view(policy: Policy, item: Expectation, now: float) -> View:
    states = dict.fromkeys(item.drained, AdminState.DRAINING) | dict.fromkeys(
        item.disabled, AdminState.DISABLED
    )
    regions = tuple(
        replace(region, admin_state=states.get(region.name, region.admin_state)) for region in policy.regions
    )
    moment = now if item.at is None else item.at.timestamp()
    health = {
        region.name: {
            endpoint.url: EndpointHealth(
                HealthStatus.DOWN if region.name in item.down else HealthStatus.UP, since=moment
            )
            for endpoint in region.endpoints
        }
        for region in regions
    }
    # A day that is past has the law of that day.
    shipped = shipped_jurisdictions(history=item.at is not None)
    snapshot = compile_policy(replace(policy, regions=regions), shipped)
    return view_of(snapshot, State(health=health), Window(moment, moment))


_REFUSED = {
    "residency": Outcome.REFUSED_RESIDENCY,
    "unavailable": Outcome.REFUSED_UNAVAILABLE,
}


def _holds(item: Expectation, first: Decision, regions: frozenset[str | None]) -> bool:
    if item.refused is not None and first.outcome is not _REFUSED[item.refused]:
        return False
    if item.region is not None and not regions <= set(_regions(item)):
        return False
    if item.reason is not None and first.reason is not item.reason:
        return False
    return item.rules is None or {rule.name for rule in first.rules} == set(item.rules)


def _expected(item: Expectation) -> str:
    what = f"refused ({item.refused})" if item.refused else " or ".join(_regions(item))
    return _sentence(what, item.reason, item.rules)


def _got(first: Decision, regions: frozenset[str | None]) -> str:
    if first.region is None:
        what = f"refused ({first.outcome.value.removeprefix('refused_')})"
    else:
        what = " or ".join(sorted(str(region) for region in regions))
    return _sentence(what, first.reason, tuple(rule.name for rule in first.rules))


def _sentence(what: str, reason: Reason | None, rules: Any) -> str:
    parts = [what]
    if reason is not None:
        parts.append(f"because {reason.value}")
    if rules is not None:
        parts.append(f"rules: {', '.join(sorted(rules)) or 'none'}")
    return "; ".join(parts)
