"""Drafts as strangers write them: read, compiled, simulated and explained in a process of its own (`gtm.control.policy.apart`).

Law: nothing of a draft is looked at in control's own process, not even parsed: its feeds and plans must not wait for it. But for short ones to be
planned within a small policy, which cost less than the process would.

Drafts as people write them are YAML, read and checked as `gtm check` does (`read`).
"""

from __future__ import annotations

import pickle
import re
import resource
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

import msgspec
from pydantic import ValidationError

from gtm.control import errors
from gtm.control.errors import BadRequest, ContentTooLarge, ControlError, Invalid, NotFound
from gtm.control.live.compiled import with_history
from gtm.control.policy import simulation
from gtm.control.policy.questions import Answers, ExplainRequest, asked
from gtm.control.policy.simulation import ScenarioDocument, Situation
from gtm.control.policy.traffic import TrafficDocument, TrafficFile
from gtm.core.demand.traffic import Traffic
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.model.requests import Location
from gtm.core.policy.snapshot import Snapshot
from gtm.documents import fields as f
from gtm.documents.folders import check_references, read_text
from gtm.documents.parts import DraftDocument, merged
from gtm.documents.resources import Document
from gtm.documents.schema import PolicyDocument
from gtm.documents.structure import problems_of_errors
from gtm.geoip.networks import told_subnet
from gtm.geoip.reader import GeoIPError, Locator
from gtm.nesting import ShapeError, loads

if TYPE_CHECKING:  # with it comes the database, which simulations and explanations have no use for
    from gtm.control.policy.trial import Trial

MOST_PAIRS = 200_000
"""Regions × services and rules of a policy that is compiled as well: more would take seconds."""
MOST_PROBLEMS = 200
"""Problems that are told of one text: who has so many mends some first."""
_CALLED = "draft"
_LINE = re.compile(rf"^{_CALLED}:([0-9]+): ")
_SAID = re.compile(r"^line ([0-9]+), column [0-9]+: ")


@dataclass(frozen=True, slots=True)
class DraftText:
    """A text to read.

    Args:
        text: YAML, as in a file of a policy.
        partial: whether resources that it does not hold stay as they are.
        gone: kind and name of what is deleted although it is partial.
        running: the policy in force.
        revision: of that.
    """

    text: str
    partial: bool
    gone: frozenset[tuple[str, str]]
    running: Policy
    revision: int


def read(asked: DraftText) -> dict[str, Any]:
    """What is wrong with a text, by line, and what it says."""
    folder = read_text(asked.text, _CALLED, MOST_PROBLEMS)

    def whole(part: Policy) -> Policy:
        return merged(asked.running, part, asked.gone) if asked.partial else part

    problems, compiled = list(folder.problems), not folder.problems
    if compiled:
        compiled = pairs(whole(folder.document().to_core())) <= MOST_PAIRS
        if compiled:
            problems, _ = check_references(folder, whole)
    policy = None if problems else folder.document().model_dump(mode="json", exclude_unset=True)
    lined = sorted((_lined(one) for one in problems), key=lambda one: one["line"] or 0)
    if len(lined) > MOST_PROBLEMS:
        words = f"there are more than {MOST_PROBLEMS} problems: these are the first"
        lined = [*lined[:MOST_PROBLEMS], _lined(Problem("", "too_many", words))]
    return {"problems": lined, "compiled": compiled, "policy": policy, "revision": asked.revision}


def pairs(policy: Policy) -> int:
    """How many of its regions × services and rules there are: the measure of how long it takes to look at a policy."""
    return len(policy.regions) * (len(policy.services) + len(policy.residency_rules))


def _lined(problem: Problem) -> dict[str, Any]:
    path, message, line = problem.path, problem.message, None
    if found := _LINE.match(path):
        line, path = int(found[1]), path[found.end() :]
    elif path == _CALLED:
        path = ""
        if found := _SAID.match(message):
            line, message = int(found[1]), message[found.end() :]
    return {"path": path, "code": problem.code, "message": message, "line": line}


MAX_PAIRS = 10_000_000
"""Regions × services and rules of a draft: 1,000 of the one, 10,000 of the others."""
MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer, which control holds in its own memory."""

GeoIP = tuple[Path | None, Path | None]
"""A database of places, and its overrides."""
_Body = TypeVar("_Body", bound=Document)


class SimulateRequest(DraftDocument):
    """A draft, what happens besides, and the traffic to try them with."""

    policy: PolicyDocument = PolicyDocument()
    """Left out: the policy in force, but for what `delete` names."""
    scenario: ScenarioDocument = ScenarioDocument()
    traffic: Literal["recorded", "current"] | TrafficDocument = "recorded"
    """`recorded` since a moment, the `current` rates, or any other."""
    traffic_csv: TrafficFile | None = None
    """Traffic as CSV, in place of `traffic`."""
    since: f.Moment | None = None
    """For recorded traffic; left out: 24 hours ago."""


class PlanRequest(DraftDocument):
    """A whole policy that might be put in force, or a part of one."""

    only_own: f.Flag = False
    """Whether of what the policy does not hold only that would be deleted which the tool of `GTM-Managed-By` manages."""


@dataclass(frozen=True, slots=True)
class DraftJob:
    """What is to be found out.

    Args:
        task: which of the three.
        body: as it was sent.
        situation: the present.
        running: the policy in force.
        revision: of that.
        traffic: to simulate with; None: the body has it.
        missing: why there is no traffic although there should be some.
        location: of the client that an explanation is of; None: the body has it.
        answers: what an edge would send; None: nobody here knows.
        geoip: where the database of places and its overrides are; None: the shipped one, and none.
        trial: what a plan has to know of who asks for it.
    """

    task: Literal["simulate", "explain", "plan"]
    body: bytes
    situation: Situation
    running: Policy
    revision: int
    traffic: Traffic | None = None
    missing: str = ""
    location: Location | None = None
    answers: Answers | None = None
    geoip: GeoIP = (None, None)
    trial: Trial | None = None


def parsed(model: type[_Body], body: bytes) -> _Body:
    """A request's body as a document.

    Raises:
        BadRequest: it is not JSON.
        ContentTooLarge: its policy has more regions, services and rules than are looked at.
        Invalid: it is wrong; every problem is listed.
    """
    try:
        document = loads(body)
    except ShapeError as error:
        raise BadRequest(f"the body is {error}") from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {str(error).lower()}") from error
    policy = document.get("policy") if isinstance(document, dict) else None
    if isinstance(policy, dict):
        _check_counts(policy)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems: list[Problem] = []
        for item in error.errors(include_url=False):
            loc, within = item["loc"], document
            if loc[:1] == ("policy",) and isinstance(document, dict):
                loc, within = loc[1:], policy
            problems += problems_of_errors([{**item, "loc": loc}], within)
        count = len(problems)
        text = f"the request has {count} problem{'' if count == 1 else 's'}; nothing was changed"
        raise Invalid(text, problems) from error


def _check_counts(policy: dict[str, Any]) -> None:
    """Before any work is done."""
    counts = {name: len(items) for name, items in policy.items() if isinstance(items, list)}
    regions = counts.pop("regions", 0)
    others = sum(counts.values())
    if regions * others > MAX_PAIRS:
        raise ContentTooLarge(
            f"the draft has {regions} regions and {others} services, rules and the like, which is {regions * others} "
            f"pairs; at most {MAX_PAIRS} are looked at"
        )


def explained(job: DraftJob, question: ExplainRequest, snapshot: Snapshot) -> dict[str, Any]:
    """One request explained by a policy.

    Raises:
        Invalid: the policy does not know a name in the request, or nobody could ask like this.
    """
    if question.client_ip is not None and question.over == "dns":
        question = question.model_copy(update={"client_ip": told_subnet(question.client_ip)})
    location = question.location if job.location is None else job.location
    request, how = asked(question, snapshot, location)
    situation = job.situation
    if question.at is not None:
        snapshot = with_history(snapshot)
        situation = replace(situation, now=question.at.timestamp())
    sent = job.answers
    answers = None if sent is None else lambda routing, option: sent(routing, option, how)
    found = simulation.explanation(
        situation, snapshot, request, question.client_ip, sheds=how.over == "http", answers=answers
    )
    told = {name: found.get(name) for name in ("dns", "redirect")}
    return {
        **found,
        **told,
        "unknown": found.get("unknown", []),
        "draft": question.policy is not None,
        "over": how.over,
        "host": how.host,
    }


def done(job: DraftJob | DraftText) -> dict[str, Any]:
    """Do a job that has a draft.

    Raises:
        ControlError: the body or what it asks is wrong.
        PolicyError: the draft does not compile.
    """
    if isinstance(job, DraftText):
        return read(job)
    if job.task == "explain":
        question = parsed(ExplainRequest, job.body)
        if question.policy is None:  # in a body that control itself could not make out
            return explained(job, question, simulation.compiled(job.running, job.revision))
        return explained(
            job, question, simulation.compile_draft(DraftDocument(policy=question.policy), job.running)
        )
    if job.task == "plan":
        return _planned(job)
    asked = parsed(SimulateRequest, job.body)
    if "policy" not in asked.model_fields_set:
        asked = asked.model_copy(update={"partial": True})
    scenario = asked.scenario.scenario
    draft = simulation.compile_draft(asked, job.running, scenario)
    if job.missing:
        raise NotFound(job.missing)
    running = simulation.compiled(job.running)
    traffic = job.traffic
    if traffic is None and asked.traffic_csv is not None:
        named = simulation.priorities(draft.policy, running.policy)
        traffic = asked.traffic_csv.traffic(named, lambda address: _locator(*job.geoip).locate(address))
    if traffic is None:
        assert not isinstance(asked.traffic, str)  # noqa: S101 - control has looked
        traffic = asked.traffic.traffic(simulation.priorities(draft.policy, running.policy))
    found = simulation.simulated(job.situation, traffic, running, draft, scenario)
    return {**found, "revision": job.revision}


def _planned(job: DraftJob) -> dict[str, Any]:
    from gtm.control.policy.trial import planned

    asked = parsed(PlanRequest, job.body)
    assert job.trial is not None  # noqa: S101 - control gives it to a plan
    return planned(job.trial, asked, job.running, job.revision, job.situation, only_own=asked.only_own)


@cache
def _locator(database: Path | None, overrides: Path | None) -> Locator:
    """Read once an address comes: most files name countries."""
    try:
        return Locator(database, overrides)
    except (GeoIPError, OSError) as error:
        raise BadRequest(f"control cannot locate addresses, so name countries: {error}") from error


def answer(job: DraftJob | DraftText) -> bytes:
    """What the process says to control: a digit for what came of it, and JSON."""
    said = _answer(job)
    if len(said) <= MAX_ANSWER:
        return said
    return _refused(ContentTooLarge(f"the answer has {len(said)} bytes; at most {MAX_ANSWER} are given"))


def _answer(job: DraftJob | DraftText) -> bytes:
    try:
        return b"1" + msgspec.json.encode(done(job))
    except ControlError as error:
        return _refused(error)
    except PolicyError as error:
        return b"0" + msgspec.json.encode(["", "", error.problems])


def _refused(error: ControlError) -> bytes:
    return b"0" + msgspec.json.encode([type(error).__name__, error.detail, error.problems])


def understood(said: bytes) -> bytes:
    """The JSON of an answer, in control.

    Raises:
        ControlError: as it was raised there.
        PolicyError: likewise.
    """
    if said[:1] == b"1":
        return said[1:]
    error, detail, problems = msgspec.json.decode(said[1:], type=tuple[str, str, tuple[Problem, ...]])
    if not error:
        raise PolicyError(problems)
    found = getattr(errors, error)
    assert issubclass(found, ControlError)  # noqa: S101 - what the process raised
    raise found(detail, problems)


def main(source: BinaryIO, out: BinaryIO) -> None:
    """Do one job and say what came of it. Only control writes to `source`."""
    memory, seconds = (int(text) for text in sys.argv[1:])
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        present = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (present + memory, present + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    try:
        out.write(answer(pickle.load(source)))  # noqa: S301 - from the process that started this one
    except MemoryError:
        out.write(b"2")
