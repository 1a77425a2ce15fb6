"""Settings and what is wrong with them, bounds, deadlines that cannot be met, budgets."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings, ModelLimits, TenantLimits, problems
from gtm.core.balance.admission.values import (
    AdmissionRefusal,
    Arrival,
    RefusalCode,
    Ticket,
    TicketState,
    Used,
)
from gtm.core.model.problems import Problem
from gtm.core.model.services import Priority
from tests.core.strategies import quick
from tests.docs.blocks import ROOT
from tests.memory import held

GOOD = AdmissionSettings()


def _ticket(result: Ticket | AdmissionRefusal) -> Ticket:
    assert isinstance(result, Ticket), result
    return result


def _refusal(result: Ticket | AdmissionRefusal) -> AdmissionRefusal:
    assert isinstance(result, AdmissionRefusal), result
    return result


# Settings


def _tenant(**limits: object) -> AdmissionSettings:
    return AdmissionSettings(tenants={"acme": TenantLimits(**limits)})  # type: ignore[arg-type]


def _models(**fallbacks: str | None) -> AdmissionSettings:
    return AdmissionSettings(
        models={name: ModelLimits(fallback=fallback) for name, fallback in fallbacks.items()}
    )


@pytest.mark.parametrize(
    ("settings", "path", "words"),
    [
        (replace(GOOD, reserves={**GOOD.reserves, "batch": 0.8}), "reserves", "sum to 1.1"),
        (_tenant(burst=5.0), "tenants.acme.burst", "decides nothing without `requests_per_second`"),
        (replace(GOOD, default_tenant=TenantLimits(burst=5.0)), "default_tenant.burst", "decides nothing"),
        (replace(GOOD, without_tenant=TenantLimits(burst=5.0)), "without_tenant.burst", "decides nothing"),
        (AdmissionSettings(tenants={"": TenantLimits()}), "tenants", "`without_tenant`"),
        (_models(a="a"), "models.a.fallback", "a → a"),
        (_models(a="b", b="c", c="a"), "models.b.fallback", "b → c → a → b"),
    ],
)
def test_what_is_wrong_with_settings_is_said(settings: AdmissionSettings, path: str, words: str) -> None:
    """Each problem says where it is, what was given and what is allowed, and such settings are not taken."""
    found = problems(settings)
    assert [problem.path for problem in found if words in problem.message] == [path]
    with pytest.raises(ValueError, match=path):
        Admission(settings)
    admission = Admission()
    with pytest.raises(ValueError, match=path):
        admission.configure(settings, 0.0)
    assert admission.settings == GOOD


def test_good_settings_have_no_problems() -> None:
    """The defaults, a chain of models, and one that leads to a model that nothing is said of."""
    assert problems(GOOD) == ()
    assert problems(_models(a="b", b="c", c=None, d="b", e="elsewhere")) == ()


def test_a_chain_into_a_circle_is_told_once_for_each_of_the_circle() -> None:
    """What leads into a circle is not itself wrong; it ends there all the same."""
    found = problems(_models(a="b", b="c", c="b"))
    assert found == (
        Problem("models.b.fallback", "circle", found[0].message),
        Problem("models.c.fallback", "circle", found[1].message),
    )


@pytest.mark.parametrize(
    "wrong",
    [{"cost": 0.0}, {"cost": -1.0}, {"cost": inf}, {"cost": nan}, {"body_bytes": -1}, {"input_tokens": -1.0},
     {"output_tokens": -1.0}, {"input_tokens": inf}, {"output_tokens": nan}, {"deadline": inf}, {"deadline": nan}],
)  # fmt: skip
def test_numbers_that_are_none_change_nothing(wrong: dict[str, float]) -> None:
    """An arrival that would spoil counts is an error, and no counts change."""
    admission = Admission(AdmissionSettings(), 1)
    with pytest.raises(ValueError, match="above 0"):
        admission.offer(Arrival(**wrong), 0.0)  # type: ignore[arg-type]
    assert not admission.snapshot().tenants
    with pytest.raises(ValueError, match="0 slots or more"):
        admission.resize(-1, 0.0)


def test_the_page_names_every_code() -> None:
    """Clients program against these words."""
    page = (ROOT / "docs/admission.md").read_text()
    assert [code for code in RefusalCode if f"`{code}`" not in page] == []


# Bounds


def test_tenants_beyond_the_bound_count_as_one() -> None:
    """Named tenants are always told apart; of others no more than the bound are kept, and the idle are forgotten."""
    settings = AdmissionSettings(
        max_tenants=10, default_tenant=TenantLimits(concurrency=2), tenants={"acme": TenantLimits()}
    )
    admission = Admission(settings)
    running = [_ticket(admission.offer(Arrival(tenant=f"t{number}"), 0.0)) for number in range(12)]
    assert _refusal(admission.offer(Arrival(tenant="t99"), 0.0)).code == RefusalCode.TENANT_CONCURRENCY
    assert "do not" not in _refusal(admission.offer(Arrival(tenant="t99"), 0.0)).detail.split("together")[1]
    _ticket(admission.offer(Arrival(tenant="acme"), 0.0))
    tenants = admission.snapshot().tenants
    assert (len(tenants), tenants[""].running, tenants["acme"].running) == (12, 2, 1)
    for ticket in running:
        admission.release(ticket, 0.0)

    def come_and_go() -> None:
        for number in range(5000):
            admission.release(_ticket(admission.offer(Arrival(tenant=f"u{number}"), 0.0)), 0.0)

    assert held(come_and_go) < 50_000
    assert _ticket(admission.offer(Arrival(tenant="new"), 0.0)).account.name == "new"


def test_what_waits_no_more_is_not_kept() -> None:
    """However many come and go while one waits: heaps grow with what waits, not with what has waited."""
    admission = Admission(AdmissionSettings(), 1)
    running = _ticket(admission.offer(Arrival(), 0.0))
    _ticket(admission.offer(Arrival(tenant="stays", deadline=1e9), 0.0))

    def come_and_go() -> None:
        nonlocal running
        for number in range(5000):
            ticket = _ticket(admission.offer(Arrival(tenant=f"t{number % 7}", deadline=1e6 + number), 0.0))
            if number % 2:
                admission.withdraw(ticket, 0.0)
            else:
                admission.release(running, 0.0)
                (running,) = admission.due(0.0)

    assert held(come_and_go) < 100_000


# Deadlines that cannot be met


def _worked(slots: int, seconds: float, ended: int = 60) -> tuple[Admission, float]:
    """A region of which each request held its slot for so long; then its slots are taken by another tenant."""
    admission = Admission(AdmissionSettings(), slots)
    now = 0.0
    for _ in range(ended):
        ticket = _ticket(admission.offer(Arrival(cost=2.0), now))
        now += seconds
        admission.release(ticket, now)
    for _ in range(slots):
        _ticket(admission.offer(Arrival(tenant="other", cost=2.0), now))
    return admission, now


@quick(120)
@given(st.integers(1, 4), st.sampled_from([0.25, 1.0]), st.integers(0, 30), st.integers(1, 80))
def test_what_cannot_begin_in_time_is_refused_at_once(
    slots: int, hold: float, ahead: int, eighths: int
) -> None:
    """If its tenant's own requests take longer at twice the pace; then it could not have begun even at that."""
    admission, now = _worked(slots, hold)
    left = eighths / 8
    for _ in range(ahead):
        _ticket(admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 1000.0), now))
    result = admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + left), now)
    at_least = ahead * hold / slots / 2
    if abs(at_least - left) < 1e-6:
        return
    assert isinstance(result, AdmissionRefusal) == (at_least > left)
    if isinstance(result, AdmissionRefusal):
        assert (result.status, result.code) == (503, RefusalCode.WAIT_TOO_LONG)
        assert result.retry_after == pytest.approx(max(at_least - left, 1.0))
        assert isinstance(admission.offer(Arrival(tenant="b", cost=2.0, deadline=now + left), now), Ticket)


def test_nothing_is_said_of_waits_before_fifty_have_ended() -> None:
    """Nor where those ahead may be gone before: then the rest moves up, and a long queue says nothing."""
    for ended, refused in ((49, False), (50, True)):
        admission, now = _worked(1, 1.0, ended)
        for _ in range(100):
            admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 1000.0), now)
        result = admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 2.0), now)
        assert isinstance(result, AdmissionRefusal) == refused
    admission, now = _worked(1, 1.0)
    for number in range(100):
        _ticket(admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 1.0 + number / 1000), now))
    late = _ticket(admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 2.0), now))
    assert {ticket.state for ticket in admission.due(now + 1.5)} == {TicketState.REFUSED}
    assert late.waiting


# Budgets


def test_a_refused_request_passes_when_it_was_told_to_come_again() -> None:
    """For rates and budgets, also in debt, and for what is larger than a minute's budget; and not long before."""
    limits = TenantLimits(1.0, 3.0, None, None, 700.0, 1000.0)
    for tokens in ((0.0, 0.0), (300.0, 0.0), (0.0, 999.0), (5000.0, 0.0), (77.0, 3333.0)):
        admission, now = Admission(AdmissionSettings(default_tenant=limits)), 0.0
        arrival = Arrival(tenant="a", input_tokens=tokens[0], output_tokens=tokens[1])
        for _ in range(20):
            result = admission.offer(arrival, now)
            while isinstance(result, AdmissionRefusal):
                assert result.retry_after is not None
                assert isinstance(
                    admission.offer(arrival, now + result.retry_after * 0.999), AdmissionRefusal
                )
                now += result.retry_after
                result = admission.offer(arrival, now)


@quick(60)
@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 400.0)), min_size=1, max_size=40))
def test_tokens_over_any_time_stay_in_budget(requests: list[tuple[float, float]]) -> None:
    """Over t seconds, what is taken in is expected to use at most the budget of t seconds and a minute."""
    admission = Admission(AdmissionSettings(default_tenant=TenantLimits(output_tokens_per_minute=600.0)))
    now, taken = 0.0, []
    for pause, tokens in requests:
        now += pause
        if isinstance(admission.offer(Arrival(tenant="a", output_tokens=tokens), now), Ticket):
            taken.append((now, tokens))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            used = sum(tokens for _, tokens in taken[first : last + 1])
            assert used <= 600.0 + 10.0 * (taken[last][0] - taken[first][0]) + 1e-3


def test_fallback_has_room_where_the_wanted_model_has_none() -> None:
    """A refusal names the model to offer instead, and there the request passes by its own limit and weight."""
    models = {"large": ModelLimits(1, 1.0, "small"), "small": ModelLimits(None, 0.1)}
    settings = AdmissionSettings(models=models, default_tenant=TenantLimits(output_tokens_per_minute=100.0))
    admission = Admission(settings)
    _ticket(admission.offer(Arrival(tenant="a", model="large", output_tokens=50.0), 0.0))
    for tenant, code in (("b", RefusalCode.MODEL_CONCURRENCY), ("a", RefusalCode.MODEL_CONCURRENCY)):
        refusal = _refusal(admission.offer(Arrival(tenant=tenant, model="large", output_tokens=90.0), 0.0))
        assert (refusal.code, refusal.fallback) == (code, "small")
    _ticket(admission.offer(Arrival(tenant="a", model="small", output_tokens=90.0), 0.0))
    admission.configure(replace(settings, models={**models, "large": ModelLimits(None, 1.0, "small")}), 0.0)
    refusal = _refusal(admission.offer(Arrival(tenant="a", model="large", output_tokens=90.0), 0.0))
    assert (refusal.code, refusal.fallback) == (RefusalCode.OUTPUT_TOKENS, "small")


def test_an_early_time_counts_as_the_latest() -> None:
    """Clocks are monotonic; a caller that mixes up two readings does no harm."""
    admission = Admission(AdmissionSettings(), 1)
    first = _ticket(admission.offer(Arrival(deadline=20.0), 10.0))
    second = _ticket(admission.offer(Arrival(deadline=20.0), 9.0))
    assert (second.offered, second.waiting) == (10.0, True)
    admission.release(first, 5.0, Used(1.0, 1.0, 1.0))
    assert [(ticket is second, ticket.admitted) for ticket in admission.due(3.0)] == [(True, 10.0)]


def test_who_is_gone_before_anybody_asked_is_not_due() -> None:
    """A request that was admitted and then withdrawn or released is nobody's to wake, and its slot goes on at once."""
    admission = Admission(AdmissionSettings(), 1)
    tickets = [_ticket(admission.offer(Arrival(), 0.0)) for _ in range(4)]
    admission.release(tickets[0], 1.0)
    admission.withdraw(tickets[1], 1.0)
    admission.release(tickets[2], 1.0)
    assert admission.due(1.0) == tickets[3:]
    assert admission.snapshot().tiers[Priority.REAL_TIME].withdrawn == 0


def test_an_early_deadline_that_is_gone_says_nothing_of_those_that_stay() -> None:
    """Once the one that might have left in time has left, the others' deadlines are what counts."""
    admission, now = _worked(1, 1.0)
    early = _ticket(admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 1.0), now))
    for _ in range(10):
        _ticket(admission.offer(Arrival(tenant="a", cost=2.0, deadline=now + 1000.0), now))
    late = Arrival(tenant="a", cost=2.0, deadline=now + 2.0)
    admission.withdraw(_ticket(admission.offer(late, now)), now)
    admission.withdraw(early, now)
    assert _refusal(admission.offer(late, now)).code == RefusalCode.WAIT_TOO_LONG


def test_a_smaller_budget_holds_at_once() -> None:
    """What was saved under a larger one and no longer fits is gone, in the same instant."""
    settings = AdmissionSettings(default_tenant=TenantLimits(output_tokens_per_minute=1000.0))
    admission = Admission(settings)
    _ticket(admission.offer(Arrival(tenant="a", output_tokens=100.0), 0.0))
    admission.configure(replace(settings, default_tenant=TenantLimits(output_tokens_per_minute=60.0)), 0.0)
    _ticket(admission.offer(Arrival(tenant="a", output_tokens=60.0), 0.0))
    refusal = _refusal(admission.offer(Arrival(tenant="a", output_tokens=60.0), 0.0))
    assert (refusal.code, refusal.retry_after) == (RefusalCode.OUTPUT_TOKENS, 60.0)


def test_a_tenant_that_owes_is_not_forgotten() -> None:
    """Neither its budget nor its turn comes back because others, who are told apart, come and go."""
    settings = AdmissionSettings(max_tenants=8, default_tenant=TenantLimits(output_tokens_per_minute=1000.0))
    admission = Admission(settings, 1)
    running = _ticket(admission.offer(Arrival(tenant="a", output_tokens=1000.0), 0.0))
    costly = _ticket(admission.offer(Arrival(tenant="c", cost=100.0), 0.0))
    others = [_ticket(admission.offer(Arrival(tenant="b"), 0.0)) for _ in range(5)]
    for ticket in (running, costly):
        admission.release(ticket, 0.0)
    for number in range(50):
        _refusal(admission.offer(Arrival(tenant=f"u{number}", deadline=-1.0), 0.0))
    assert (
        _refusal(admission.offer(Arrival(tenant="a", output_tokens=9.0), 0.0)).code
        == RefusalCode.OUTPUT_TOKENS
    )
    again = _ticket(admission.offer(Arrival(tenant="c"), 0.0))
    for ticket in others[:-1]:
        admission.release(ticket, 0.0)
    assert (others[-1].state, again.state) == (TicketState.ADMITTED, TicketState.WAITING)


@pytest.mark.parametrize(("used", "level"), [(None, -4000), (0.0, 1000), (4000.0, -3000), (10**9, -4000)])
def test_one_request_costs_five_minutes_of_a_budget_at_the_most(used: float | None, level: float) -> None:
    """Whether it states the tokens itself or its answer does; what is given back is what was charged."""
    admission = Admission(AdmissionSettings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0)))
    ticket = _ticket(admission.offer(Arrival(output_tokens=10_000.0), 0.0))
    bucket = ticket.account.outputs
    assert bucket is not None
    assert bucket.level(0.0) == -4000
    admission.release(ticket, 0.0, Used(output_tokens=used))
    assert bucket.level(0.0) == level
    assert bucket.wait(1000.0, 0.0) <= 300
    assert admission.spared_tokens == max((10_000 if used is None else used) - 5000, 0)
