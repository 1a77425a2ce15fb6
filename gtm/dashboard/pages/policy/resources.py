"""Policy: all resources by kind, searched; one of them with its YAML and what refers to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.core.model.access import Role
from gtm.core.model.kinds import label
from gtm.dashboard.inside import ApiProblem, name, resource
from gtm.dashboard.pages.policy.forms import FORMS
from gtm.dashboard.pages.policy.words import SENTENCES, SLUGS, TITLES, as_yaml, kind_of
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

PAGE = 100
"""Resources on a page."""
_SEARCH = 200
"""Characters of a search that are used."""


@page("/policy")
async def _overview(visit: Visit) -> Response:
    """What there is, by kind; found by words, a page at a time."""
    asked = visit.query("kind")
    kind: Any = None if asked is None else kind_of(asked)
    search = (visit.query("search") or "")[:_SEARCH]
    managed_by = visit.query("managed_by")
    found, managers = await asyncio.gather(
        visit.api.ask(
            calls.search_resources(
                kind=kind,
                search=search,
                managed_by=managed_by,
                limit=PAGE,
                cursor=visit.query("after"),
            )
        ),
        visit.api.list_managers(),
    )
    kept = {"search": search, "managed_by": managed_by}
    address = {"kind": asked, **kept, "after": found.next_cursor}
    return visit.render(
        "policy.html",
        kind=kind,
        search=search,
        managed_by=managed_by,
        managers=managers.items_,
        found=found,
        rows=[_row(one) for one in found.items_],
        titles=TITLES,
        slugs=SLUGS,
        more=f"/policy?{_query(address)}" if found.next_cursor else None,
        links={one: f"/policy?{_query({'kind': SLUGS[one], **kept})}" for one in TITLES},
        every=f"/policy?{_query(kept)}",
        paged=visit.query("after") is not None,
    )


def _query(parameters: Mapping[str, str | None]) -> str:
    return urlencode({key: value for key, value in parameters.items() if value})


def _row(one: types.InventoryItem) -> dict[str, str]:
    kind, resource = one.kind, one.resource
    return {
        "kind": kind,
        "name": one.name,
        "path": path_of(kind, one.name),
        "display_name": resource.get("display_name", ""),
        "mode": resource.get("mode", ""),
        "state": resource.get("admin_state", ""),
        "words": SENTENCES[kind](resource),
        "manager": one.managed_by.manager if one.managed_by else "",
    }


def path_of(kind: str, called: str) -> str:
    """The path of a resource's page."""
    return f"/policy/{SLUGS[kind]}/{called}"


@page("/policy/{kind}/{name}/release", methods=("POST",), role=Role.OPERATOR)
async def _release(visit: Visit) -> Response:
    """Let nobody manage a resource any more."""
    given, form = visit.request.path_params, await visit.form()
    kind, called = kind_of(given["kind"]), name(given["name"])
    body: Any = {
        "manager": form.get("manager", ""),
        "resources": [{"kind": kind, "name": called}],
        "reason": form.get("reason", "").strip(),
    }
    try:
        await visit.api.reassign_managers(body)
    except ApiProblem as error:
        if error.status not in (404, 409, 422):
            raise
        return await _resource(visit, error.status, error.document)
    return visit.go(path_of(kind, called))


@page("/policy/{kind}/{name}")
async def _resource(visit: Visit, status: int = 200, refused: Mapping[str, Any] | None = None) -> Response:
    """One resource: what it says in a sentence and in YAML, and what refers to it."""
    given = visit.request.path_params
    kind: Any = kind_of(given["kind"])
    called = name(given["name"])
    call = resource(kind, called)
    found, referring = await asyncio.gather(
        visit.api.send(call), visit.api.list_references(kind=kind, name=called)
    )
    document = found.value
    return visit.render(
        "policy_resource.html",
        status,
        refused=refused,
        manager=found.managed_by,
        since=found.headers.get("gtm-managed-since"),
        kind=kind,
        slug=SLUGS[kind],
        label=label(kind),
        name=called,
        resource=document,
        words=SENTENCES[kind](document),
        shipped=kind == "jurisdictions" and document.get("origin") != "operator",
        text=as_yaml({kind: [document]}),
        revision=referring.revision,
        referring=[{**one, "href": path_of(one.kind, one.name)} for one in referring.items_],
        left_out=referring.left_out,
        api_path=call.path,
        has_form=kind in FORMS,
        titles=TITLES,
    )
