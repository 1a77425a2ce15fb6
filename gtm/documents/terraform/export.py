"""A policy → Terraform's configuration of the same policy.

Laws:
 1. Applied to an empty control, the configuration makes an equal policy, but for regions' admin states and for texts that are
    not in Unicode's NFC, which Terraform makes of every text.
 2. A resource's label depends on its name alone, and no two resources of a kind have the same.
 3. The same policy gives the same text, and `terraform fmt` leaves it as it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gtm.core.model import kinds
from gtm.core.model.kinds import KINDS, REFERENCES
from gtm.documents.schema import PolicyDocument
from gtm.documents.terraform.hcl import Expression, block
from gtm.documents.terraform.references import Documents, Resource, needs, replaced

TYPES: Mapping[str, str] = {kind: f"gtm_{kinds.label(kind).replace(' ', '_')}" for kind in KINDS}
"""Kind → the type of its resources in Terraform."""

FILES = ("terraform.tf", *(f"{kind}.tf" for kind in KINDS), "imports.tf")
"""The files that a policy may need, in the order of reading."""

HEAD = "# Written by `gtm export --format hcl`.\n"
"""The first line of each file."""
_TERRAFORM = """\
terraform {
  required_version = ">= 1.8"

  required_providers {
    gtm = {
      source = "gtm/gtm"
    }
  }
}
"""
_IMPORTS = "# These take over what control has. Once they are applied, they can go.\n"
_OPERATED = frozenset({"admin_state", "draining_since", "challenges"})
"""Fields that operators and ACME clients change by command, and no configuration holds."""


def files(policy: PolicyDocument, *, imports: bool = False) -> dict[str, str]:
    """The configuration by file: one for each kind that there is, for Terraform's own settings, and for imports.

    Args:
        policy: one that compiles.
        imports: whether all resources are there already, and are taken over.
    """
    documents = _documents(policy)
    referring, besides = needs(documents)
    found = {"terraform.tf": _TERRAFORM}
    for kind, items in documents.items():
        blocks = [
            _resource(kind, name, document, referring[kind, name], besides.get((kind, name), ()))
            for name, document in items.items()
        ]
        if blocks:
            found[f"{kind}.tf"] = "\n".join(blocks)
    if imports and (blocks := list(_imports(documents))):
        found["imports.tf"] = f"{_IMPORTS}\n" + "\n".join(blocks)
    return {name: f"{HEAD}\n{text}" for name, text in found.items()}


def joined(files: Mapping[str, str]) -> str:
    """The files of a configuration as one text."""
    return "\n".join((HEAD, *(text.removeprefix(f"{HEAD}\n") for text in files.values())))


def label(kind: str, name: str) -> str:
    """What a resource is called in Terraform, where no name holds a dot or begins with a digit.

    Underscores are the custom there, and names of policies have none. In zones they stand for dots, and two for a hyphen: dots
    and hyphens never stand beside each other, so that no two zones get the same label.
    """
    made = name.replace("-", "__").replace(".", "_") if kind == "zones" else name.replace("-", "_")
    return made if made[0].isalpha() else f"_{made}"


def not_normal(policy: PolicyDocument) -> tuple[str, ...]:
    """The resources that hold texts which are not in NFC, as `kind.name`: Terraform will change these."""
    return tuple(
        f"{kind}.{name}"
        for kind, items in _documents(policy).items()
        for name, document in items.items()
        if not all(unicodedata.is_normalized("NFC", one) for one in _texts(document))
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _documents(policy: PolicyDocument) -> Documents:
    """Kind → name → document, without what is the default anyway."""
    concise = policy.model_dump(exclude_defaults=True)
    found: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for item in concise.get(kind, ()):
            document = {key: value for key, value in item.items() if key not in _OPERATED}
            if "hostnames" in document:  # a set in Terraform, of one type
                hosts = document["hostnames"]
                document["hostnames"] = [{"name": one} if isinstance(one, str) else one for one in hosts]
            found[kind][item["name"]] = document
    return found


def _resource(
    kind: str,
    name: str,
    document: Mapping[str, Any],
    referring: Collection[Resource],
    besides: Collection[Resource],
) -> str:
    def link(target: str, named: str) -> str:
        known = (target, named) in referring
        return Expression(f"{_address(target, named)}.name") if known else named

    body = replaced(document, REFERENCES.get(kind, {}), link)
    if besides:
        body["depends_on"] = [Expression(one) for one in sorted(_address(*other) for other in besides)]
    return block(f'resource "{TYPES[kind]}" "{label(kind, name)}"', body)


def _imports(documents: Documents) -> Iterator[str]:
    for kind, items in documents.items():
        for name in items:
            yield block("import", {"to": Expression(_address(kind, name)), "id": name})


def _address(kind: str, name: str) -> str:
    return f"{TYPES[kind]}.{label(kind, name)}"
