"""Editing the policy: a draft as YAML or as a form, what it changes, a second person's approval, and putting it in force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.responses import Response

from gtm.api.routes.policy.resources import EXAMPLES
from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.model.access import Role
from gtm.core.model.kinds import label
from gtm.dashboard.drafts import Draft
from gtm.dashboard.effects import told
from gtm.dashboard.inside import ApiProblem, name
from gtm.dashboard.pages.policy import conflicts, forms
from gtm.dashboard.pages.policy.revisions import on_purpose, shown
from gtm.dashboard.pages.policy.words import SLUGS, TITLES, as_yaml, concise, kind_of
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

_HIDE_MUCH = frozenset({"regions"})
"""Kinds whose forms leave out what a new one needs: a region's endpoints would be the example's, unseen."""
_REFUSED = (400, 403, 409, 412, 422)
"""Statuses with which the API says no to a change."""


@page("/policy/edit", role=Role.OPERATOR)
async def _edit_whole(visit: Visit) -> Response:
    """All of the policy."""
    found = await visit.api.send(calls.get_policy().having(headers={"accept": "application/yaml"}))
    revision = int(found.headers["etag"].strip('"'))
    return await _editor(visit, Draft(str(found.value), revision, whole=True).checked())


@page("/policy/{kind}/{name}/edit", role=Role.OPERATOR)
async def _edit(visit: Visit) -> Response:
    """One resource, as a form where there is one unless YAML is asked for."""
    kind = kind_of(visit.part("kind"))
    called = name(visit.part("name"))
    document, tag, revision = await conflicts.current(visit.api, kind, called)
    draft = Draft(as_yaml({kind: [document or {}]}), revision, tags={f"{kind}/{called}": tag})
    if kind in forms.FORMS and visit.query("as") != "yaml":
        return await _form(visit, draft)
    return await _editor(visit, draft)


@page("/policy/{kind}/new", role=Role.OPERATOR)
async def _new(visit: Visit) -> Response:
    """A new resource, that begins as an example."""
    kind = kind_of(visit.part("kind"))
    revision = (await visit.api.ask(calls.search_resources(limit=1))).revision
    example = EXAMPLES[kind]["typical"]["value"]
    called = "example.com" if kind == "zones" else f"new-{label(kind).replace(' ', '-')}"
    if kind in forms.FORMS and kind not in _HIDE_MUCH and visit.query("as") != "yaml":
        began = {"name": called, **forms.beginning(kind, example, await forms.known(visit.api))}
        return await _form_page(visit, Draft(forms.rewritten(kind, began), revision), kind, began, [])
    return await _editor(visit, Draft(as_yaml({kind: [{"name": called, **example}]}), revision))


@page("/policy/{kind}/{name}/delete", role=Role.OPERATOR)
async def _delete(visit: Visit) -> Response:
    """What becomes of it, if one resource goes."""
    kind = kind_of(visit.part("kind"))
    called = name(visit.part("name"))
    _, tag, revision = await conflicts.current(visit.api, kind, called)
    key = f"{kind}/{called}"
    return await _preview(visit, Draft("", revision, tags={key: tag}, delete=[key]))


@page("/policy/draft")
async def _shared(visit: Visit) -> Response:
    """A draft that somebody has sent; who may change nothing sees what it would do to traffic."""
    packed = visit.query("d") or ""
    draft = Draft.of_link(packed)
    if not visit.may("operator"):
        return visit.go(f"/simulate?{urlencode({'traffic': 'now', 'd': packed})}")
    return await _preview(visit, draft)


@page("/policy/draft", methods=("POST",))
async def _go_on(visit: Visit) -> Response:
    """Carry out what the pressed button of a draft asks for."""
    form = await visit.form()
    draft, do = Draft.of_form(form), form.get("do", "")
    if form.get("kind") in forms.FORMS:
        filled = await _filled(visit, draft, form["kind"], form)
        if isinstance(filled, Response):
            return filled
        draft = filled
    if do == "merge":
        draft = await conflicts.merged(visit.api, draft, form)
    act = _ACTS.get(do)
    return await (act(visit, draft) if act else _preview(visit, draft))


async def _filled(visit: Visit, draft: Draft, kind: str, form: Mapping[str, str]) -> Draft | Response:
    """A draft with what its form says; or the form once more, with what is wrong with it."""
    found = await draft.read(visit.api)
    items = (found.policy or JsonObject()).get(kind) or [{}]
    document = forms.filled(kind, concise(kind, items[0], states=True) if items[0] else {}, form)
    made = replace(draft, text=forms.rewritten(kind, document)).checked()
    problems = (await made.read(visit.api)).problems
    if problems and form.get("do") != "yaml":
        return await _form_page(visit, draft, kind, document, problems)
    return made


@page("/policy/draft/problems", methods=("POST",))
async def _problems(visit: Visit) -> Response:
    """What is wrong with a text, as it is typed."""
    draft = Draft.of_form(await visit.form())
    found = await draft.read(visit.api)
    return visit.render("policy_problems.html", read=found)


async def _editor(
    visit: Visit, draft: Draft, status: int = 200, refused: Mapping[str, Any] | None = None
) -> Response:
    """The text."""
    found = await draft.read(visit.api)
    return visit.render(
        "policy_edit.html",
        status,
        draft=draft,
        read=found,
        refused=refused,
        called=draft.called(found),
        managers=await conflicts.managers(visit.api, draft),
        form_kind=forms.kind_of_draft(found.policy),
    )


async def _form(visit: Visit, draft: Draft) -> Response:
    """Show the draft as a form; a text that is wrong, or of a kind without a form, stays YAML."""
    found = await draft.read(visit.api)
    kind = forms.kind_of_draft(found.policy)
    if kind is None:
        words = "only a sound text of a single region, service, residency rule or spillover rule can be shown as a form"
        return await _editor(visit, draft, 422, {"title": "This stays YAML", "detail": words})
    return await _form_page(
        visit,
        draft,
        kind,
        concise(kind, (found.policy or JsonObject())[kind][0], states=True),
        found.problems,
    )


async def _form_page(
    visit: Visit, draft: Draft, kind: str, document: Mapping[str, Any], problems: list[Any]
) -> Response:
    return visit.render(
        "policy_form.html",
        422 if problems else 200,
        draft=draft,
        kind=kind,
        slug=SLUGS[kind],
        label=label(kind),
        called=document.get("name", ""),
        is_new=f"{kind}/{document.get('name', '')}" not in draft.tags,
        problems=problems,
        placed=forms.placed(kind, document.get("name", ""), problems),
        fields=forms.fields(kind, document),
        known=await forms.known(visit.api),
        managers=await conflicts.managers(visit.api, draft),
    )


async def _preview(
    visit: Visit, draft: Draft, status: int = 200, refused: Mapping[str, Any] | None = None
) -> Response:
    """What a draft changes: read, compared, judged; or what keeps it from that."""
    found = await draft.read(visit.api)
    if found.problems:
        return await _editor(visit, draft, 422)
    draft, against = await conflicts.against(visit.api, draft, found.policy or {})
    if against.conflicts:
        return visit.render(
            "policy_conflict.html", 409, draft=draft, against=against, titles=TITLES, slugs=SLUGS
        )
    found = await draft.read(visit.api)
    try:
        tried = await visit.api.apply_policy(_body(draft, found, dry_run=True))
    except ApiProblem as error:
        if error.status not in _REFUSED or not visit.may("operator"):
            raise
        return await _editor(visit, draft, error.status, error.document)
    form = await visit.form() if visit.request.method == "POST" else {}
    safety = tried.safety
    return visit.render(
        "policy_preview.html",
        status,
        draft=draft,
        tried=tried,
        refused=refused,
        carried=against.carried,
        called=draft.called(found),
        titles=TITLES,
        given=form,
        approvals=await _approvals(visit, safety.fingerprint if safety else None),
        **shown(tried.changes, tried.managed, found.policy),
    )


def _body(draft: Draft, found: types.ReadView, **more: Any) -> Any:
    return {"policy": found.policy, **draft.partial, "unless_changed": draft.held, **more}


async def _approvals(visit: Visit, fingerprint: str | None) -> list[dict[str, Any]]:
    if fingerprint is None:
        return []
    items = (await visit.api.list_fence_approvals()).items_
    return [one for one in items if one.sha256 == fingerprint]


async def _apply(visit: Visit, draft: Draft) -> Response:
    """Put it in force, if nobody changed meanwhile what it changes."""
    form = await visit.form()
    reason = form.get("reason", "").strip()
    if not reason:
        words = {"title": "Not done", "detail": "say why: it is kept with the revision"}
        return await _preview(visit, draft, 422, words)
    found = await draft.read(visit.api)
    if found.problems:
        return await _editor(visit, draft, 422)
    stands, against = await conflicts.against(visit.api, draft, found.policy or {})
    if against.conflicts or against.carried:
        return await _preview(visit, draft, 409)
    draft = stands
    body = _body(draft, found, comment=reason)
    try:
        done = await visit.api.apply_policy(
            body, if_match=f'"{draft.revision}"' if draft.whole else None, **on_purpose(form, reason)
        )
    except ApiProblem as error:
        if error.status not in _REFUSED:
            raise
        return await _preview(visit, draft, error.status, error.document)
    return visit.go(f"/policy/revisions/{done.revision}")


async def _approve(visit: Visit, draft: Draft) -> Response:
    """Approve of somebody else's draft, as it was shown."""
    form = await visit.form()
    body: types.ApprovalRequest = {
        "sha256": form.get("fingerprint", ""),
        "reason": form.get("approval", "").strip(),
    }
    try:
        await visit.api.approve_fence(body)
    except ApiProblem as error:
        return await _preview(visit, draft, error.status, error.document)
    return visit.go(f"/policy/draft?d={draft.packed}") if draft.packed else await _preview(visit, draft)


@page("/policy/draft/effect", methods=("POST",))
async def _effect(visit: Visit) -> Response:
    """What it would make of traffic, on the map and in numbers."""
    form = await visit.form()
    draft = Draft.of_form(form)
    found = await draft.read(visit.api)
    traffic = "current" if form.get("traffic") == "current" else "recorded"
    body: Any = {"policy": found.policy or {}, **draft.partial, "traffic": traffic}
    values: dict[str, Any] = {"draft": draft, "effect": None, "problem": None}
    try:
        values["effect"] = told(await visit.api.simulate_policy(body))
    except ApiProblem as error:
        values["problem"] = error.document
    return visit.render("policy_effect.html" if visit.partial else "policy_effect_page.html", **values)


async def _share(visit: Visit, draft: Draft) -> Response:
    """The draft at an address of its own."""
    return visit.go(f"/policy/draft?d={draft.packed}") if draft.packed else await _preview(visit, draft)


_ACTS: Mapping[str, Callable[[Visit, Draft], Awaitable[Response]]] = {
    "yaml": _editor,
    "form": _form,
    "share": _share,
    "apply": _apply,
    "approve": _approve,
}
"""What buttons ask for; all else shows what the draft changes."""
