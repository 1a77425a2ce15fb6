"""List, get, put, patch and delete, for every kind of resource: one factory, typed per kind.

Each kind has a worked example of its document, for the OpenAPI description.
"""

# No postponed annotations here: the factory's endpoints are annotated with its local types.

from contextlib import suppress
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import ValidationError, create_model

from gtm.api.context import (
    MANAGED_BY,
    MANAGED_SINCE,
    Comment,
    Context,
    Ctx,
    Force,
    ForceReason,
    OnlyManagedBy,
    Operator,
    Viewer,
    Writing,
    managed_headers,
    reply,
)
from gtm.api.paging import (
    Cursor,
    IfMatch,
    IfNoneMatch,
    Limit,
    decode_cursor,
    encode_cursor,
    not_modified,
    precondition,
)
from gtm.api.query import strict_router
from gtm.api.schemas.base import Changed, ResourceChanged, ResourcePage, errors
from gtm.control.errors import Invalid
from gtm.control.policy import resources
from gtm.control.policy.trial import ChangeOutcome
from gtm.core.model.kinds import KINDS, label
from gtm.core.model.problems import Problem
from gtm.documents import patching
from gtm.documents.fields import HostName, JurisdictionName, Name
from gtm.documents.schema import DOCUMENTS, to_document
from gtm.documents.structure import problems_of
from gtm.storage.errors import StorageUnavailable
from gtm.storage.resources import PutOutcome

_DOCUMENTS: dict[str, dict[str, Any]] = {
    "regions": {
        "display_name": "Frankfurt",
        "lat": 50.1109,
        "lon": 8.6821,
        "country": "DE",
        "endpoints": [{"url": "https://fra.example.com", "ipv4": ["192.0.2.10"]}],
        "models": ["llama-3.1-8b"],
        "capacity": {"outstanding": 512},
        "probe": {"type": "https", "path": "/healthz", "interval": 5, "timeout": 2},
    },
    "zones": {
        "primary_ns": "ns1.example.com",
        "hostmaster": "hostmaster.example.com",
        "name_servers": [
            {"name": "ns1.example.com", "ipv4": ["192.0.2.53"], "ipv6": ["2001:db8::53"]},
            {"name": "ns2.example.net"},
        ],
        "records": [{"name": "@", "type": "MX", "data": ["10 mail.example.net."]}],
    },
    "services": {
        "members": [{"region": "eu-central"}, {"region": "eu-west", "weight": 0.5}],
        "hostnames": ["chat.gtm.example.com"],
        "zone": "gtm.example.com",
        "ttl": 30,
        "steering": "latency",
        "refusal": {"ipv4": ["192.0.2.99"]},
    },
    "residency_rules": {
        "match": {"services": ["chat"], "client_jurisdictions": ["EEA"]},
        "allow": {"jurisdictions": ["EEA"]},
        "legal_basis": "Regulation (EU) 2016/679, Chapter V",
    },
    "spillover_rules": {"from_region": "eu-central", "to_regions": ["eu-west"], "max_share": 0.3},
    "jurisdictions": {"display_name": "DACH", "members": ["DE", "AT", "CH"], "source": "company policy 7"},
    "tenants": {"display_name": "Clinic"},
    "data_classes": {"display_name": "Health data"},
}

EXAMPLES: dict[str, dict[str, Any]] = {
    kind: {"typical": {"summary": f"A typical document ({kind})", "value": document}}
    for kind, document in _DOCUMENTS.items()
}
"""Kind → examples as OpenAPI wants them."""


SLUGS = {kind: kind.replace("_", "-") for kind in KINDS}
"""Kind → its name in URLs."""

_ETAG = {"ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}}}
READ = {
    **_ETAG,
    MANAGED_BY: {"description": "The tool that manages it, if one does.", "schema": {"type": "string"}},
    MANAGED_SINCE: {"description": "Since when.", "schema": {"type": "string", "format": "date-time"}},
}
"""Headers of a resource."""


async def refreshed(ctx: Context) -> None:
    """Take in what was just changed. It is in force all the same, and is published once the database is back."""
    with suppress(StorageUnavailable):
        await ctx.replica.watch.refresh()


async def changed(ctx: Ctx, outcome: ChangeOutcome) -> dict[str, Any]:
    """What every change answers: revision, PENDING or IN_SYNC, warnings."""
    if ctx.present.revision < outcome.revision or outcome.claimed:
        await refreshed(ctx)
    return {
        "revision": outcome.revision,
        "sync": await ctx.sync(outcome.revision),
        "warnings": outcome.warnings,
    }


def _name_type(kind: str) -> Any:
    return {"zones": HostName, "jurisdictions": JurisdictionName}.get(kind, Name)


@cache
def resource_router(kind: str) -> APIRouter:
    """The endpoints of one kind; jurisdictions are read elsewhere, since shipped ones are shown among them."""
    router = strict_router(prefix=f"/v1/{SLUGS[kind]}", tags=[SLUGS[kind]])
    _add_put(router, kind)
    _add_patch(router, kind)
    _add_delete(router, kind)
    if kind != "jurisdictions":
        _add_reads(router, kind)
    return router


def _add_reads(router: APIRouter, kind: str) -> None:
    document: Any = DOCUMENTS[kind]
    name_type = _name_type(kind)

    @router.get(
        "",
        operation_id=f"list_{kind}",
        summary=f"List {SLUGS[kind].replace('-', ' ')}, by name",
        response_model=ResourcePage[document],
        responses=errors(400),
    )
    async def list_(
        ctx: Ctx, _: Viewer, limit: Limit = 100, cursor: Cursor = None, managed_by: OnlyManagedBy = None
    ) -> Response:
        after = decode_cursor(cursor)
        found = await resources.list_page(ctx.database, kind, after, limit + 1, manager=managed_by)
        items = [stored.value for stored in found[:limit]]
        managed = {one.value.name: one.managed for one in found[:limit] if one.managed is not None}
        more = encode_cursor(items[-1].name) if len(found) > limit else None
        tags = {one.value.name: resources.tag(one) for one in found[:limit]}
        return reply({"items": items, "managed_by": managed, "etags": tags, "next_cursor": more})

    @router.get(
        "/{name:segment}",
        operation_id=f"get_{kind}",
        summary=f"Get a {label(kind)}",
        response_model=document,
        responses={
            200: {"headers": READ},
            304: {"description": "It still has (one of) the entity tags in If-None-Match."},
            **errors(404),
        },
    )
    async def get(
        ctx: Ctx,
        _: Viewer,
        name: name_type,  # type: ignore[valid-type]
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        stored = await resources.get(ctx.database, kind, name)
        tag, managed = resources.tag(stored), managed_headers(stored.managed)
        return not_modified(if_none_match, tag, managed) or reply(
            to_document(stored.value), headers={"ETag": tag, **managed}
        )


def _named(document: Any, given: Any, name: str, kind: str) -> Any:
    """A document with the name in its URL. What it says is checked again, for it may be relative to the name.

    Raises:
        Invalid: under this name it is wrong.
    """
    if given.name is not None:
        return given
    try:
        return document.model_validate({**given.model_dump(exclude_unset=True), "name": name})
    except ValidationError as error:
        problems = problems_of(error, prefix=f"{kind}.{name}", model=document)
        raise Invalid("the document is wrong; nothing was changed", tuple(problems)) from error


def _same(kind: str, given: Any, name: str) -> None:
    """Check that a body that names the resource names the one in the URL.

    Raises:
        Invalid: it names another.
    """
    if given not in (None, name):
        message = f"`{given}` is not the name in the URL, `{name}`"
        raise Invalid(
            f"{message}; nothing was changed", (Problem(f"{kind}.{name}.name", "overlap", message),)
        )


def _add_put(router: APIRouter, kind: str) -> None:
    document: Any = DOCUMENTS[kind]
    name_type = _name_type(kind)
    body_type = create_model(f"{document.__name__}Put", __base__=document, name=(name_type | None, None))
    body_type.__doc__ = f"{document.__doc__} The name may be left out: it is in the URL."

    @router.put(
        "/{name:segment}",
        operation_id=f"put_{kind}",
        summary=f"Create or replace a {label(kind)}",
        description="Idempotent. The whole policy is compiled with it; what does not compile changes nothing. A tool "
        f"(`{MANAGED_BY}`) manages the resource from then on.",
        response_model=ResourceChanged[document],
        responses={
            200: {"headers": READ},
            201: {
                "description": "Created",
                "model": ResourceChanged[document],
                "headers": READ,
            },
            **errors(404, 409, 412, 413, 415),
        },
    )
    async def put(
        *,
        ctx: Ctx,
        who: Operator,
        name: name_type,  # type: ignore[valid-type]
        body: Annotated[body_type, Body(openapi_examples=EXAMPLES[kind])],  # type: ignore[valid-type]
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
        comment: Comment = "",
        force: Force = False,
        force_reason: ForceReason = "",
        writing: Writing,
    ) -> Response:
        given: Any = body
        _same(kind, given.name, name)
        done = await resources.put(
            ctx.database,
            kind,
            _named(document, given, name, kind),
            precondition(if_match, if_none_match),
            ctx.intent(who, comment.strip(), force=force, reason=force_reason, writer=writing),
        )
        return await put_reply(ctx, done)


def _add_patch(router: APIRouter, kind: str) -> None:
    document: Any = DOCUMENTS[kind]
    name_type = _name_type(kind)
    schema = {
        "type": "object",
        "additionalProperties": True,
        "description": f"Members of a {label(kind)} as PUT takes them; null takes one away.",
    }

    @router.patch(
        "/{name:segment}",
        operation_id=f"patch_{kind}",
        summary=f"Change some members of a {label(kind)}",
        description="JSON Merge Patch (RFC 7396): members left out stay, null takes a member away (what it is then is its default), objects "
        "are merged, lists are replaced whole. What comes of it is judged as by PUT. Changes that others made meanwhile stay, without "
        "If-Match too.",
        response_model=ResourceChanged[document],
        responses={200: {"headers": READ}, **errors(404, 409, 412, 413, 415)},
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": schema}}}},
    )
    async def patch(
        *,
        ctx: Ctx,
        who: Operator,
        name: name_type,  # type: ignore[valid-type]
        body: Annotated[dict[str, Any], Body(media_type=patching.MEDIA_TYPE)],
        if_match: IfMatch = None,
        comment: Comment = "",
        force: Force = False,
        force_reason: ForceReason = "",
        writing: Writing,
    ) -> Response:
        _same(kind, body.get("name"), name)
        done = await resources.patch(
            ctx.database,
            kind,
            name,
            body,
            precondition(if_match, None),
            ctx.intent(who, comment.strip(), force=force, reason=force_reason, writer=writing),
        )
        return await put_reply(ctx, done)


def _add_delete(router: APIRouter, kind: str) -> None:
    name_type = _name_type(kind)

    @router.delete(
        "/{name:segment}",
        operation_id=f"delete_{kind}",
        summary=f"Delete a {label(kind)}",
        response_model=Changed,
        responses=errors(404, 409, 412),
    )
    async def delete(
        *,
        ctx: Ctx,
        who: Operator,
        name: name_type,  # type: ignore[valid-type]
        if_match: IfMatch = None,
        comment: Comment = "",
        force: Force = False,
        force_reason: ForceReason = "",
        writing: Writing,
    ) -> Response:
        outcome = await resources.delete(
            ctx.database,
            kind,
            name,
            precondition(if_match, None),
            ctx.intent(who, comment.strip(), force=force, reason=force_reason, writer=writing),
        )
        return reply(await changed(ctx, outcome))


async def put_reply(ctx: Ctx, done: resources.Put) -> Response:
    """The answer to a put, a patch, or to a change of a region's admin state."""
    content = {
        "outcome": done.outcome.value,
        "resource": to_document(done.stored.value),
        "managed_by": done.managed,
        **await changed(ctx, done.change),
    }
    status = 201 if done.outcome is PutOutcome.CREATED else 200
    return reply(content, status, {"ETag": resources.tag(done.stored), **managed_headers(done.managed)})
