"""Policy values survive the database exactly."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.storage import documents
from gtm.storage.resources import PutOutcome, sort_policy
from gtm.storage.session import Database
from tests.effort import examples

# What outside documents may hold: no NUL and no lone surrogates, finite numbers, offsets in whole minutes.
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
names = texts.filter(bool)
floats = st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))])
)

st.register_type_strategy(str, texts)
st.register_type_strategy(float, floats)
st.register_type_strategy(datetime, times)


def named(kind: type) -> st.SearchStrategy:
    """Resources of one kind, each name once."""
    return st.lists(st.builds(kind, name=names), max_size=3, unique_by=lambda r: r.name).map(tuple)


policies = st.builds(Policy, **{kind: named(value) for kind, value in KINDS.items()})


@given(policies)
def test_documents_round_trip(policy: Policy) -> None:
    """Any policy comes back equal from its JSON, types included, and has one checksum."""
    text = documents.dumps(documents.to_document(policy))
    again = documents.from_document(documents.loads(text), Policy)
    assert again == policy
    assert documents.dumps(documents.to_document(again)) == text
    assert documents.policy_sha256(again) == documents.policy_sha256(policy)
    assert json.loads(text).keys() == KINDS.keys()


@pytest.mark.endurance
def test_policies_round_trip_through_postgres(database_url: str) -> None:
    """Any policy comes back equal from its rows and from its revision, and storing it again changes nothing."""

    async def store(policy: Policy) -> None:
        database = Database(database_url)
        try:
            async with database.transaction() as tx:
                for kind in KINDS:
                    for stored in await tx.resources(kind).all():
                        await tx.resources(kind).delete(stored.value.name)
                    for value in getattr(policy, kind):
                        assert (await tx.resources(kind).put(value))[0] is PutOutcome.CREATED
                loaded = await tx.policy.load()
                assert loaded == sort_policy(policy)
                # Equality alone would let 1, 1.0 and true pass for each other.
                assert documents.policy_sha256(loaded) == documents.policy_sha256(sort_policy(policy))
                for kind in KINDS:
                    for value in getattr(policy, kind):
                        assert (await tx.resources(kind).put(value))[0] is PutOutcome.UNCHANGED
                revision = await tx.revisions.add(policy, author="test", comment="", summary={})
                assert await tx.revisions.policy(revision.number) == loaded
                assert revision.sha256 == documents.policy_sha256(loaded)
        finally:
            await database.dispose()

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(policies)
    def attempt(policy: Policy) -> None:
        asyncio.run(store(policy))

    attempt()


def test_numbers_keep_their_type_in_jsonb(database_url: str) -> None:
    """Large and tiny floats come back from `jsonb` as the very same floats, and big integers as integers."""
    numbers = [1e16, 1e22, 1e23, 1.7976931348623157e308, 5e-324, -1e17, 0.1, 2.0**53, 10**30, 1, True]
    with psycopg.connect(database_url) as connection:
        (text,) = connection.execute("SELECT (%s::jsonb)::text", [documents.dumps(numbers)]).fetchone()
    again = documents.loads(text)
    assert again == numbers
    assert [type(n) for n in again] == [type(n) for n in numbers]


@pytest.mark.parametrize("number", [1e16, 1e22, -1.5e300, 1.7976931348623157e308, 1e-7, 5e-324, 0.0, 123.25])
def test_numbers_are_exact_wherever_they_stand(number: float) -> None:
    """A large float is written in full in any place, and texts that look like one stay as they are."""
    for document in (number, [number], [1, -number], {"a": number}, {"a": [{"b": number}], "c": "1e22"}):
        text = documents.dumps(document)
        assert documents.loads(text) == document
        assert not re.search(r"\de[+\d]", text.replace('"1e22"', "")), "jsonb would make an integer of it"
    for text in ("1e22", ",1e22", "[-1.5e300]", "-0.0", ":-0.0,"):
        assert documents.loads(documents.dumps([text, -0.0])) == [text, 0.0]
        assert documents.loads(documents.dumps({text: number})) == {text: number}


def test_zero_has_no_sign() -> None:
    """Minus zero and zero are one value with one checksum, as `jsonb` has it."""
    assert documents.dumps({"lat": -0.0}) == documents.dumps({"lat": 0.0}) == '{"lat":0.0}'
