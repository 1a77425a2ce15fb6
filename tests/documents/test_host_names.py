"""Host names in documents: strings, and mappings for those that state something."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from gtm.core.model.policy import Policy
from gtm.core.model.services import HostName
from gtm.documents.diff import diff_policies
from gtm.documents.schema import PolicyDocument, concise_policy, export_policy
from gtm.documents.structure import problems_of


def _document(*hosts: Any) -> dict[str, Any]:
    return {
        "services": [
            {"name": "chat", "members": [{"region": "de"}], "zone": "test", "hostnames": list(hosts)}
        ]
    }


def _read(*hosts: Any) -> Policy:
    return PolicyDocument.model_validate(_document(*hosts)).to_core()


BANK = {"name": "Bank.Test.", "tenant": "bank", "data_class": "payment"}


def test_both_forms_are_read_written_and_sent() -> None:
    """A name that states nothing is a string however it was written; all else comes back as it went."""
    policy = _read("a.test", BANK, {"name": "b.test"}, {"name": "*.c.test", "data_class": "notes"})
    hosts = policy.services[0].hostnames
    assert hosts == (
        "a.test",
        HostName("bank.test", "bank", "payment"),
        "b.test",
        HostName("*.c.test", None, "notes"),
    )
    assert [host.name for host in policy.services[0].names] == ["a.test", "bank.test", "b.test", "*.c.test"]
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy
    for exported in (export_policy(policy), concise_policy(policy)):
        assert PolicyDocument.model_validate(exported).to_core() == policy
    assert concise_policy(policy)["services"][0]["hostnames"] == [
        "a.test",
        {"name": "bank.test", "tenant": "bank", "data_class": "payment"},
        "b.test",
        {"name": "*.c.test", "data_class": "notes"},
    ]


def test_what_changes_is_told() -> None:
    """A statement that comes or goes is a change of the service; another way to write the same is none."""
    plain, same, stating = (
        _read("a.test"),
        _read({"name": "a.test"}),
        _read({"name": "a.test", "tenant": "bank"}),
    )
    assert diff_policies(plain, same) == ()
    (change,) = diff_policies(plain, stating)
    assert [field.path for field in change.fields] == ["hostnames"]


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("no host", "services.chat.hostnames[0]"),
        (7, "services.chat.hostnames[0]"),
        ({"tenant": "bank"}, "services.chat.hostnames[0].name"),
        ({"name": "no host"}, "services.chat.hostnames[0].name"),
        ({"name": "a.test", "tenant": "No Name"}, "services.chat.hostnames[0].tenant"),
        ({"name": "a.test", "tennant": "bank"}, "services.chat.hostnames[0].tennant"),
    ],
)
def test_errors_have_their_place(host: Any, path: str) -> None:
    """What is wrong is told at the field as it was written, with nothing of how it is read."""
    document = _document(host)
    with pytest.raises(ValidationError) as caught:
        PolicyDocument.model_validate(document)
    (problem,) = problems_of(caught.value, document, model=PolicyDocument)
    assert problem.path == path
    if "tennant" in path:
        assert problem.message.endswith("did you mean `tenant`?")
