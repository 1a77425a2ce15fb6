"""The provider knows every kind and field that the API has."""

from __future__ import annotations

from gtm.core.model.kinds import KINDS
from tests.release import terraform_spec


def test_the_provider_knows_the_api_of_today() -> None:
    """What is written is what would be written: else `make provider-spec`."""
    for path, text in terraform_spec.written().items():
        assert path.read_text() == text, f"{path} is not today's: make provider-spec"


def test_every_kind_is_a_resource() -> None:
    """A new one fails here until somebody says what it is called."""
    assert set(terraform_spec.KINDS) == set(KINDS)


def test_what_is_decided_by_hand_is_about_fields_that_there_are() -> None:
    """An order or an omission of a field that is gone would be of nothing."""
    written = terraform_spec.written()[terraform_spec.FOLDER / "spec.json"]
    for path in terraform_spec.ORDERED:
        assert f'"{path.rpartition(".")[2]}"' in written
    for path in terraform_spec.LEFT_OUT:
        kind, _, name = path.partition(".")
        assert name not in [
            one["name"]
            for one in next(k for k in terraform_spec.spec()["kinds"] if k["name"] == kind)["attributes"]
        ]
