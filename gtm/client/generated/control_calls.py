"""Each call of the control API as a value, to be sent by a session. Written by `make client`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from gtm.client.calls import Call, Content, PagedCall, segment

if TYPE_CHECKING:
    from gtm.client.generated import control_types as types


def get_policy(*, admin_states: bool | None = None) -> Call[types.PolicyView]:
    """Export the whole policy. JSON, or YAML for `Accept: application/yaml`. Regions carry their admin
    state and zones their challenges only if asked for, since applying an export must not undo a drain
    or delete a challenge made since.

    Args:
        admin_states: Include the regions' admin states and the zones' challenges.
    """
    return Call("GET", "/v1/policy", parameters={"admin_states": admin_states})


def apply_policy(
    body: types.ApplyRequest,
    *,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.PolicyChanged]:
    """Put a whole policy in force, or a part of one. All or nothing. `If-Match` with the ETag of `GET
    /v1/policy` guards against changes made meanwhile, `unless_changed` against those of single
    resources. With `partial`, what the policy does not hold stays. A tool (`GTM-Managed-By`) manages
    from then on what the policy holds.

    Args:
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "POST",
        "/v1/policy:apply",
        parameters={
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def list_revisions(
    *, limit: int | None = None, cursor: str | None = None, below: int | None = None
) -> PagedCall[types.PageRevisionSchema, types.RevisionSchema]:
    """List revisions, newest first. A page of revisions: who made each, when, why, and what it changed
    in a line.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        below: Only revisions of lower numbers.
    """
    return PagedCall("GET", "/v1/revisions", parameters={"limit": limit, "cursor": cursor, "below": below})


def get_revision(number: int) -> Call[types.RevisionView]:
    """Get a revision with its policy. A revision, with the whole policy as it was.

    Args:
        number: The revision's number.
    """
    return Call("GET", f"/v1/revisions/{segment(number)}")


def diff_revision(number: int, *, against: int | None = None) -> Call[types.DiffView]:
    """What differs between two revisions. Get the differences between revision `against` and revision
    `number`.

    Args:
        number: The revision's number.
        against: 0: the empty policy. Left out: the revision before.
    """
    return Call("GET", f"/v1/revisions/{segment(number)}/diff", parameters={"against": against})


def rollback_revision(
    number: int,
    body: types.RollbackRequest | None | None = None,
    *,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.PolicyChanged]:
    """Put an earlier revision's policy in force again. Makes a new revision. Regions keep their admin
    state of today, zones their challenges. `If-Match` with the ETag of `GET /v1/policy` guards
    against changes made meanwhile.

    Args:
        number: The revision's number.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "POST",
        f"/v1/revisions/{segment(number)}:rollback",
        parameters={
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def accept_older(body: types.AcceptOlderRequest) -> Call[types.AcceptedView]:
    """Say that going back to what the database has is meant. For a database that was restored from a
    backup: edges and balancers that hold revisions which it has lost keep them until then, and are
    sent its own at once afterwards. Whoever does this may open a fence by it: nobody can tell what
    was lost. 409: nobody holds any.
    """
    return Call("POST", "/v1/revisions:accept-older", body=body)


def drain_region(
    name: str, *, comment: str | None = None, force: bool | None = None, force_reason: str | None = None
) -> Call[types.ResourceChangedRegionDocument]:
    """Take no new clients in a region.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
    """
    return Call(
        "POST",
        f"/v1/regions/{segment(name)}:drain",
        parameters={"comment": comment, "force": force, "force_reason": force_reason},
    )


def activate_region(
    name: str, *, comment: str | None = None, force: bool | None = None, force_reason: str | None = None
) -> Call[types.ResourceChangedRegionDocument]:
    """Let a region take clients again.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
    """
    return Call(
        "POST",
        f"/v1/regions/{segment(name)}:activate",
        parameters={"comment": comment, "force": force, "force_reason": force_reason},
    )


def disable_region(
    name: str, *, comment: str | None = None, force: bool | None = None, force_reason: str | None = None
) -> Call[types.ResourceChangedRegionDocument]:
    """Take a region out of service, and stop probing it.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
    """
    return Call(
        "POST",
        f"/v1/regions/{segment(name)}:disable",
        parameters={"comment": comment, "force": force, "force_reason": force_reason},
    )


def list_jurisdictions(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    countries: bool | None = None,
    managed_by: str | None = None,
) -> PagedCall[types.ResourcePageJurisdictionView, types.JurisdictionView]:
    """List jurisdictions, by name. The shipped ones (read-only) and the operators' own; every country
    code too, if asked for.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        countries: Also every country, with notes on its law.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET",
        "/v1/jurisdictions",
        parameters={"limit": limit, "cursor": cursor, "countries": countries, "managed_by": managed_by},
    )


def get_jurisdictions(name: str, *, if_none_match: str | None = None) -> Call[types.JurisdictionView]:
    """Get a jurisdiction or country. A jurisdiction with its members, past memberships and sources; a
    country counts as one.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/jurisdictions/{segment(name)}", headers={"if-none-match": if_none_match})


def put_jurisdictions(
    name: str,
    body: types.JurisdictionDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedJurisdictionDocument]:
    """Create or replace a jurisdiction. Idempotent. The whole policy is compiled with it; what does not
    compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/jurisdictions/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_jurisdictions(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedJurisdictionDocument]:
    """Change some members of a jurisdiction. JSON Merge Patch (RFC 7396): members left out stay, null
    takes a member away (what it is then is its default), objects are merged, lists are replaced
    whole. What comes of it is judged as by PUT. Changes that others made meanwhile stay, without
    If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/jurisdictions/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_jurisdictions(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a jurisdiction.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/jurisdictions/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_residency(
    *,
    at: datetime | str | None = None,
    tenant: types.Name | None = None,
    data_class: types.Name | None = None,
    client: types.JurisdictionName | None = None,
    service: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> PagedCall[types.MatrixView, types.MatrixRow]:
    """Services by jurisdictions of clients: who may serve them, and by which rules. By the enforced
    rules of the policy in force, for clients whose country is certain. Columns are the jurisdictions
    that rules name for their clients (8 at most, those that most rules name first), or the one asked
    for; then all other countries, and clients that nobody can locate. Which of these regions is up or
    has room is no matter of this.

    Args:
        at: When: now (left out), or later.
        tenant: What requests state; left out: none, so that every rule about tenants counts.
        data_class: The data class that requests state; left out: none, so that every rule about
            data classes counts.
        client: A jurisdiction or country: the only column.
        service: Only services whose names begin so.
        limit: Most services in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
    """
    return PagedCall(
        "GET",
        "/v1/residency",
        parameters={
            "at": at,
            "tenant": tenant,
            "data_class": data_class,
            "client": client,
            "service": service,
            "limit": limit,
            "cursor": cursor,
        },
        most=100,
    )


def get_residency_calendar(
    *,
    at: datetime | str | None = None,
    tenant: types.Name | None = None,
    data_class: types.Name | None = None,
    limit: int | None = None,
) -> Call[types.CalendarView]:
    """Rules and memberships that begin or end, and what each such moment changes. The next first. At
    each, the fences of up to 10 services just before and from then on are compared. Memberships are
    those of all jurisdictions, also such as no rule names.

    Args:
        at: When: now (left out), or later.
        tenant: What requests state; left out: none, so that every rule about tenants counts.
        data_class: The data class that requests state; left out: none, so that every rule about
            data classes counts.
        limit: Most moments in the answer.
    """
    return Call(
        "GET",
        "/v1/residency/calendar",
        parameters={"at": at, "tenant": tenant, "data_class": data_class, "limit": limit},
    )


def get_monitored_rules(*, since: datetime | str | None = None) -> Call[types.MonitoredView]:
    """Rules in monitor mode, and what each would have refused. Recorded demand, judged by the policy in
    force as of now, with each of the rules enforced by itself. A request is narrowed if it would have
    lost some of its regions, and refused if it would have lost all. Rules that would have been about
    nothing are there too.

    Args:
        since: From then on; left out: 24 hours ago.
    """
    return Call("GET", "/v1/residency/monitored", parameters={"since": since})


def put_regions(
    name: str,
    body: types.RegionDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedRegionDocument]:
    """Create or replace a region. Idempotent. The whole policy is compiled with it; what does not
    compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/regions/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_regions(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedRegionDocument]:
    """Change some members of a region. JSON Merge Patch (RFC 7396): members left out stay, null takes a
    member away (what it is then is its default), objects are merged, lists are replaced whole. What
    comes of it is judged as by PUT. Changes that others made meanwhile stay, without If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/regions/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_regions(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a region.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/regions/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_regions(name: str, *, if_none_match: str | None = None) -> Call[types.RegionDocument]:
    """Get a region.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/regions/{segment(name)}", headers={"if-none-match": if_none_match})


def list_regions(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageRegionDocument, types.RegionDocument]:
    """List regions, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/regions", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def put_zones(
    name: str,
    body: types.ZoneDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedZoneDocument]:
    """Create or replace a zone. Idempotent. The whole policy is compiled with it; what does not compile
    changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/zones/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_zones(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedZoneDocument]:
    """Change some members of a zone. JSON Merge Patch (RFC 7396): members left out stay, null takes a
    member away (what it is then is its default), objects are merged, lists are replaced whole. What
    comes of it is judged as by PUT. Changes that others made meanwhile stay, without If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/zones/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_zones(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a zone.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/zones/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_zones(name: str, *, if_none_match: str | None = None) -> Call[types.ZoneDocument]:
    """Get a zone.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/zones/{segment(name)}", headers={"if-none-match": if_none_match})


def list_zones(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageZoneDocument, types.ZoneDocument]:
    """List zones, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/zones", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def put_services(
    name: str,
    body: types.ServiceDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedServiceDocument]:
    """Create or replace a service. Idempotent. The whole policy is compiled with it; what does not
    compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/services/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_services(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedServiceDocument]:
    """Change some members of a service. JSON Merge Patch (RFC 7396): members left out stay, null takes a
    member away (what it is then is its default), objects are merged, lists are replaced whole. What
    comes of it is judged as by PUT. Changes that others made meanwhile stay, without If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/services/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_services(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a service.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/services/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_services(name: str, *, if_none_match: str | None = None) -> Call[types.ServiceDocument]:
    """Get a service.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/services/{segment(name)}", headers={"if-none-match": if_none_match})


def list_services(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageServiceDocument, types.ServiceDocument]:
    """List services, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/services", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def put_residency_rules(
    name: str,
    body: types.ResidencyRuleDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedResidencyRuleDocument]:
    """Create or replace a residency rule. Idempotent. The whole policy is compiled with it; what does
    not compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/residency-rules/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_residency_rules(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedResidencyRuleDocument]:
    """Change some members of a residency rule. JSON Merge Patch (RFC 7396): members left out stay, null
    takes a member away (what it is then is its default), objects are merged, lists are replaced
    whole. What comes of it is judged as by PUT. Changes that others made meanwhile stay, without
    If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/residency-rules/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_residency_rules(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a residency rule.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/residency-rules/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_residency_rules(name: str, *, if_none_match: str | None = None) -> Call[types.ResidencyRuleDocument]:
    """Get a residency rule.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/residency-rules/{segment(name)}", headers={"if-none-match": if_none_match})


def list_residency_rules(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageResidencyRuleDocument, types.ResidencyRuleDocument]:
    """List residency rules, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/residency-rules", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def put_spillover_rules(
    name: str,
    body: types.SpilloverRuleDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedSpilloverRuleDocument]:
    """Create or replace a spillover rule. Idempotent. The whole policy is compiled with it; what does
    not compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/spillover-rules/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_spillover_rules(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedSpilloverRuleDocument]:
    """Change some members of a spillover rule. JSON Merge Patch (RFC 7396): members left out stay, null
    takes a member away (what it is then is its default), objects are merged, lists are replaced
    whole. What comes of it is judged as by PUT. Changes that others made meanwhile stay, without
    If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/spillover-rules/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_spillover_rules(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a spillover rule.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/spillover-rules/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_spillover_rules(name: str, *, if_none_match: str | None = None) -> Call[types.SpilloverRuleDocument]:
    """Get a spillover rule.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/spillover-rules/{segment(name)}", headers={"if-none-match": if_none_match})


def list_spillover_rules(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageSpilloverRuleDocument, types.SpilloverRuleDocument]:
    """List spillover rules, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/spillover-rules", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def put_tenants(
    name: str,
    body: types.TenantDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedTenantDocument]:
    """Create or replace a tenant. Idempotent. The whole policy is compiled with it; what does not
    compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/tenants/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_tenants(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedTenantDocument]:
    """Change some members of a tenant. JSON Merge Patch (RFC 7396): members left out stay, null takes a
    member away (what it is then is its default), objects are merged, lists are replaced whole. What
    comes of it is judged as by PUT. Changes that others made meanwhile stay, without If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/tenants/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_tenants(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a tenant.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/tenants/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_tenants(name: str, *, if_none_match: str | None = None) -> Call[types.TenantDocument]:
    """Get a tenant.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/tenants/{segment(name)}", headers={"if-none-match": if_none_match})


def list_tenants(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageTenantDocument, types.TenantDocument]:
    """List tenants, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/tenants", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def put_data_classes(
    name: str,
    body: types.DataClassDocumentPut,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedDataClassDocument]:
    """Create or replace a data class. Idempotent. The whole policy is compiled with it; what does not
    compile changes nothing. A tool (`GTM-Managed-By`) manages the resource from then on.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PUT",
        f"/v1/data-classes/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "if-none-match": if_none_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def patch_data_classes(
    name: str,
    body: dict[str, Any],
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.ResourceChangedDataClassDocument]:
    """Change some members of a data class. JSON Merge Patch (RFC 7396): members left out stay, null
    takes a member away (what it is then is its default), objects are merged, lists are replaced
    whole. What comes of it is judged as by PUT. Changes that others made meanwhile stay, without
    If-Match too.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "PATCH",
        f"/v1/data-classes/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
        body=body,
    )


def delete_data_classes(
    name: str,
    *,
    comment: str | None = None,
    force: bool | None = None,
    force_reason: str | None = None,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    if_match: str | None = None,
    managed_by: str | None = None,
) -> Call[types.Changed]:
    """Delete a data class.

    Args:
        comment: Why; kept with the revision.
        force: Make the change although it breaks safety rules; needs `force_reason`.
        force_reason: Why it has to be made all the same; kept with the revision.
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        if_match: Only if the resource has (one of) these entity tags; `*`: any.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "DELETE",
        f"/v1/data-classes/{segment(name)}",
        parameters={
            "comment": comment,
            "force": force,
            "force_reason": force_reason,
            "on_managed": on_managed,
            "managed_reason": managed_reason,
        },
        headers={"if-match": if_match, "GTM-Managed-By": managed_by},
    )


def get_data_classes(name: str, *, if_none_match: str | None = None) -> Call[types.DataClassDocument]:
    """Get a data class.

    Args:
        if_none_match: Only if it has none of these entity tags; `*`: if there is none.
    """
    return Call("GET", f"/v1/data-classes/{segment(name)}", headers={"if-none-match": if_none_match})


def list_data_classes(
    *, limit: int | None = None, cursor: str | None = None, managed_by: str | None = None
) -> PagedCall[types.ResourcePageDataClassDocument, types.DataClassDocument]:
    """List data classes, by name.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
    """
    return PagedCall(
        "GET", "/v1/data-classes", parameters={"limit": limit, "cursor": cursor, "managed_by": managed_by}
    )


def get_challenge(zone: types.HostName, name: str) -> Call[types.ChallengeView]:
    """Get a challenge's records. What is there, and whether all edges answer so.

    Args:
        zone: The zone's name.
        name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
    """
    return Call("GET", f"/v1/zones/{segment(zone)}/records/{segment(name)}")


def put_challenge(zone: types.HostName, name: str, body: types.ChallengePut) -> Call[types.ChallengeView]:
    """Write a challenge's records. For ACME clients (DNS-01, RFC 8555 §8.4). Idempotent. Whole writes of
    the zone, by whomever, leave challenges as they are, and nobody's management of the zone stands
    against them. The edges answer with it once `sync` says `IN_SYNC`.

    Args:
        zone: The zone's name.
        name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
    """
    return Call("PUT", f"/v1/zones/{segment(zone)}/records/{segment(name)}", body=body)


def delete_challenge(zone: types.HostName, name: str, *, value: str | None = None) -> Call[types.Changed]:
    """Delete a challenge's records. What is not there is deleted all the same: clients clean up more
    than once.

    Args:
        zone: The zone's name.
        name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
        value: Only this one; left out: all.
    """
    return Call("DELETE", f"/v1/zones/{segment(zone)}/records/{segment(name)}", parameters={"value": value})


def search_resources(
    *,
    kind: Literal[
        "regions",
        "zones",
        "services",
        "residency_rules",
        "spillover_rules",
        "jurisdictions",
        "tenants",
        "data_classes",
    ]
    | None = None,
    search: str | None = None,
    managed_by: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> PagedCall[types.Inventory, types.InventoryItem]:
    """Search resources of all kinds. By kind, then by name. Those are found whose documents hold every
    word of `search`, in whatever field.

    Args:
        kind: Only of this kind.
        search: Words, in any order and case.
        managed_by: Only what this tool manages, such as `terraform/prod-network`.
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
    """
    return PagedCall(
        "GET",
        "/v1/resources",
        parameters={
            "kind": kind,
            "search": search,
            "managed_by": managed_by,
            "limit": limit,
            "cursor": cursor,
        },
    )


def list_names(*, limit: int | None = None) -> Call[types.Names]:
    """What requests may name. Names alone, from memory: to choose from. Where regions are, for maps.

    Args:
        limit: Most items in the answer.
    """
    return Call("GET", "/v1/names", parameters={"limit": limit})


def list_references(
    *,
    kind: Literal[
        "regions",
        "zones",
        "services",
        "residency_rules",
        "spillover_rules",
        "jurisdictions",
        "tenants",
        "data_classes",
    ],
    name: str,
) -> Call[types.References]:
    """What refers to a resource. It is answered by the policy in force, in which nothing refers to a
    resource that does not exist.
    """
    return Call("GET", "/v1/references", parameters={"kind": kind, "name": name})


def read_policy(body: types.ReadRequest) -> Call[types.ReadView]:
    """Read a draft written as YAML. What is wrong with it, line by line, as `gtm check` says it, and
    what it says as JSON. Changes nothing. A long text, or one with anchors, is read in a process with
    bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at
    work.
    """
    return Call("POST", "/v1/policy:read", body=body)


def list_managers() -> Call[types.ManagerList]:
    """List the tools that manage resources. Answered from memory, also while the database is down."""
    return Call("GET", "/v1/managers")


def reassign_managers(body: types.ReassignRequest) -> Call[types.ReassignView]:
    """Let another tool manage resources, or none. The resources stay as they are, and there is no
    revision. All or nothing: 409 if one of them is not managed by `manager`, 404 if that manages
    nothing.
    """
    return Call("POST", "/v1/managers:reassign", body=body)


def list_fence_approvals() -> Call[types.ApprovalList]:
    """List approvals, the latest first. Approvals that have ended are in the list, too."""
    return Call("GET", "/v1/fence-approvals")


def approve_fence(body: types.ApprovalRequest) -> Call[types.ApprovalView]:
    """Approve of a change that opens a fence. It counts only if nobody has both in hand, what approves
    and what makes the change: their owners, and whoever made them.
    """
    return Call("POST", "/v1/fence-approvals", body=body)


def simulate_policy(body: types.SimulateRequest) -> Call[types.SimulationView]:
    """Try a draft, or a scenario, with traffic. What the policy in force makes of it, and what the draft
    would (left out: the same policy) if a `scenario` came true: regions that fail or drain, other
    capacity, more demand, a day to come. Else health, latency and load are as they are now. Shares,
    latency, spillover, refusals, room, and what moves. Changes nothing. It is worked out in a process
    with bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at
    work.
    """
    return Call("POST", "/v1/policy:simulate", body=body)


def plan_policy(
    body: types.PlanRequest,
    *,
    on_managed: types.OnManaged | None = None,
    managed_reason: str | None = None,
    managed_by: str | None = None,
) -> Call[types.PolicyChanged]:
    """Say what a whole policy, or a part of one, would change. What `policy:apply` says of a dry run:
    changes, findings, what the safety rules say to whoever asks, what other tools manage. It takes no
    right to change anything, so that pull requests can plan. What is long is looked at in a process
    of its own, as by `policy:simulate`.

    Args:
        on_managed: What to do with what another tool manages; needs `managed_reason`. `override`:
            change it this once. `take_over`: manage it from now on. Left out: the change is
            refused.
        managed_reason: Why; kept with the revision.
        managed_by: The tool that makes the change, and manages from now on what it writes:
            `terraform/prod-network`. Left out: nobody's.
    """
    return Call(
        "POST",
        "/v1/policy:plan",
        parameters={"on_managed": on_managed, "managed_reason": managed_reason},
        headers={"GTM-Managed-By": managed_by},
        body=body,
    )


def explain_route(body: types.ExplainRequest) -> Call[types.ExplanationView]:
    """Explain a decision, by the policy in force or by a draft. With health, plan and latency as they
    are now at control, and with what an edge would send: the DNS answers, or the redirect. Edges
    explain what they answer at their own `GET /v1/route?explain=1`. A draft is looked at in a process
    of its own, as by `policy:simulate`.
    """
    return Call("POST", "/v1/route:explain", body=body)


def get_demand(
    *,
    limit: int | None = None,
    at: datetime | str | None = None,
    region: types.Name | None = None,
    service: types.Name | None = None,
    tenant: types.Name | None = None,
    data_class: types.Name | None = None,
    priority: types.Priority | None = None,
    client: types.JurisdictionName | None = None,
) -> Call[types.DemandView]:
    """Demand now or then, by region, ranking class and demand cell. Now: smoothed over 3 s; an edge that
    stops reporting counts for 30 s more; from memory. Then (`at`): of the recorded minute in which
    that moment lies or, where that was not recorded, of the last one up to an hour before.

    Args:
        limit: Most rows in the answer.
        at: When; left out: now.
        region: Only this region; left out: all.
        service: Only this service.
        tenant: Only requests that state this tenant.
        data_class: Only requests that state this data class.
        priority: Only requests of this priority.
        client: Only clients in this country, or in the countries that this jurisdiction has at that
            time.
    """
    return Call(
        "GET",
        "/v1/demand",
        parameters={
            "limit": limit,
            "at": at,
            "region": region,
            "service": service,
            "tenant": tenant,
            "data_class": data_class,
            "priority": priority,
            "client": client,
        },
    )


def get_demand_timeline(
    *, since: datetime | str | None = None, until: datetime | str | None = None
) -> Call[types.TimelineView]:
    """How many requests were recorded, step by step. In as many steps of 1, 5, 15 or 60 minutes, 6
    hours, a day or a week as 300 are enough for.

    Args:
        since: From then on; left out: 24 hours ago.
        until: Until before then; left out: now.
    """
    return Call("GET", "/v1/demand/timeline", parameters={"since": since, "until": until})


def get_demand_answers(
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    service: types.Name | None = None,
) -> Call[types.AnswersView]:
    """How requests were answered, step by step: by the tier that answered, region and outcome. Recorded
    minute by minute (`GTM_DEMAND_DAYS`), joined to at most 61 steps. A DNS answer counts as the
    requests that it stands for.

    Args:
        since: From then on; left out: 24 hours ago.
        until: Until before then; left out: now.
        service: Only this service.
    """
    return Call("GET", "/v1/demand/answers", parameters={"since": since, "until": until, "service": service})


def get_recorded_demand(
    *, since: datetime | str | None = None, until: datetime | str | None = None
) -> Call[types.RecordedView]:
    """Recorded demand by demand cell, with its peak and a timeline. Minutes that were not recorded count
    as no time, not as idle.

    Args:
        since: From then on; left out: 24 hours ago.
        until: Until before then; left out: now.
    """
    return Call("GET", "/v1/demand/recorded", parameters={"since": since, "until": until})


def get_request_times(
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    region: types.Name | None = None,
    service: types.Name | None = None,
    models: bool | None = None,
) -> Call[types.RequestTimesView]:
    """What requests took at regions' model servers, by region, service and time. Counted by gtm's
    balancers, in the region that served them; recorded minute by minute as long as demand is
    (`GTM_DEMAND_DAYS`), and joined to 171 steps at the most. Percentiles are read from counts in
    buckets that grow by an eighth at the most.

    Args:
        since: From then on; left out: 24 hours ago.
        until: Until before then; left out: now.
        region: Only this region; left out: all.
        service: Only this service.
        models: Tell models apart.
    """
    return Call(
        "GET",
        "/v1/demand/times",
        parameters={"since": since, "until": until, "region": region, "service": service, "models": models},
    )


def get_spillover(
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    service: types.Name | None = None,
) -> Call[types.SpilloverView]:
    """What went from region to region, by service and time, as it was counted. By edges: requests that
    they sent elsewhere than to the region that their class likes best, usable or not, of services
    that are steered by latency or place; a DNS answer counts as the requests that it stands for. By
    balancers: requests that found no slot, and that a peer region took. Recorded minute by minute
    (`GTM_DEMAND_DAYS`), joined to at most 61 steps.

    Args:
        since: From then on; left out: 24 hours ago.
        until: Until before then; left out: now.
        service: Only this service.
    """
    return Call(
        "GET", "/v1/demand/spillover", parameters={"since": since, "until": until, "service": service}
    )


def list_dnssec() -> Call[types.ZoneKeysList]:
    """Keys of all signed zones, by zone. Every zone that has keys, also one that the policy no longer
    has signed, and why keys cannot be made now, if so.
    """
    return Call("GET", "/v1/dnssec")


def get_dnssec(zone: types.HostName) -> Call[types.ZoneKeysSchema]:
    """Keys of a zone. Their states and next steps, and the DS records that the parent should have.

    Args:
        zone: The zone's name.
    """
    return Call("GET", f"/v1/dnssec/{segment(zone)}")


def roll_dnssec_key(zone: types.HostName, body: types.RollRequest) -> Call[types.ZoneKeysSchema]:
    """Replace a key. Begins the replacement, or makes one under way urgent; the steps follow by
    themselves, but for the DS record of a new key-signing key.

    Args:
        zone: The zone's name.
    """
    return Call("POST", f"/v1/dnssec/{segment(zone)}/roll", body=body)


def confirm_ds(zone: types.HostName) -> Call[types.ZoneKeysSchema]:
    """Confirm that the parent has the DS record. It is the record of the newest key-signing key. Where
    control has a resolver (`GTM_DNSSEC_RESOLVER`) it sees that itself.

    Args:
        zone: The zone's name.
    """
    return Call("POST", f"/v1/dnssec/{segment(zone)}/ds-seen")


def withdraw_ds(zone: types.HostName, body: types.WithdrawRequest) -> Call[types.ZoneKeysSchema]:
    """Ask the parent to drop its DS records. Publishes the CDS and CDNSKEY records for that (RFC 8078),
    before DNSSEC is switched off; with `withdrawing` false, the usual ones again.

    Args:
        zone: The zone's name.
    """
    return Call("POST", f"/v1/dnssec/{segment(zone)}/withdraw", body=body)


def create_token(body: types.TokenRequest) -> Call[types.TokenCreated]:
    """Make a token. The answer holds its text, which is shown this once and stored nowhere."""
    return Call("POST", "/v1/tokens", body=body)


def list_tokens(
    *, limit: int | None = None, cursor: str | None = None
) -> PagedCall[types.PageTokenView, types.TokenView]:
    """List tokens, by name. Revoked and expired ones included, the latest of a name first.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
    """
    return PagedCall("GET", "/v1/tokens", parameters={"limit": limit, "cursor": cursor})


def rotate_token(token: str, body: types.RotateRequest | None | None = None) -> Call[types.TokenCreated]:
    """Replace a token's text. The new token has the name, role, expiry and owner of the old one, which
    works until the grace is over. The answer holds its text, which is shown this once and stored
    nowhere.

    Args:
        token: The token's name.
    """
    return Call("POST", f"/v1/tokens/{segment(token)}:rotate", body=body)


def revoke_token(token: str) -> Call[types.TokenView]:
    """Revoke a token. For good; by name, with those that it has replaced. It stops working here at once,
    and at edges as soon as the feed has told them. Its name is free again.

    Args:
        token: The token's id or its name.
    """
    return Call("DELETE", f"/v1/tokens/{segment(token)}")


def create_sign_in_link() -> Call[types.LinkView]:
    """Make a link that signs in at the dashboard. It works once, within five minutes, at the control
    that made it, for whoever holds the token.
    """
    return Call("POST", "/v1/sign-in-links")


def list_sessions() -> Call[types.SessionList]:
    """List who is signed in at the dashboard. An admin sees all sessions, others their own."""
    return Call("GET", "/v1/sessions")


def end_session(session: str) -> Call[None]:
    """Sign a browser out. An admin may end any session, others their own.

    Args:
        session: The session's id.
    """
    return Call("DELETE", f"/v1/sessions/{segment(session)}", content=Content.NOTHING)


def end_sessions(name: str) -> Call[types.Ended]:
    """Sign somebody out everywhere. End all sessions of one name.

    Args:
        name: What they are called in the list of sessions.
    """
    return Call("DELETE", f"/v1/people/{segment(name)}/sessions")


def list_audit(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    who: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    forced: bool | None = None,
    public: bool | None = None,
    oldest_first: bool | None = None,
) -> PagedCall[types.PageEntryView, types.EntryView]:
    """Search the audit log, the newest first. Every change and every forced action. What is about
    tokens, sessions and sign-ins only admins see.

    Args:
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
        who: Part of who did it, in any case.
        action: An action (`region.drain`), or a family of them (`region`).
        target: Part of what it was done to, in any case.
        since: From then on.
        until: Until before then.
        forced: Only what overruled safety rules, or only what did not.
        public: Without what is about tokens, sessions and sign-ins, as viewers see it.
        oldest_first: List the oldest entry first.
    """
    return PagedCall(
        "GET",
        "/v1/audit",
        parameters={
            "limit": limit,
            "cursor": cursor,
            "who": who,
            "action": action,
            "target": target,
            "since": since,
            "until": until,
            "forced": forced,
            "public": public,
            "oldest_first": oldest_first,
        },
    )


def export_audit(
    *,
    who: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    forced: bool | None = None,
    public: bool | None = None,
    oldest_first: bool | None = None,
) -> Call[Any]:
    """The same as lines of JSON, without pages. All that is found, as it is read.

    Args:
        who: Part of who did it, in any case.
        action: An action (`region.drain`), or a family of them (`region`).
        target: Part of what it was done to, in any case.
        since: From then on.
        until: Until before then.
        forced: Only what overruled safety rules, or only what did not.
        public: Without what is about tokens, sessions and sign-ins, as viewers see it.
        oldest_first: List the oldest entry first.
    """
    return Call(
        "GET",
        "/v1/audit:export",
        parameters={
            "who": who,
            "action": action,
            "target": target,
            "since": since,
            "until": until,
            "forced": forced,
            "public": public,
            "oldest_first": oldest_first,
        },
        content=Content.LINES,
    )


def list_edges() -> Call[types.EdgeList]:
    """List the edges, by name. The list has every edge that was ever heard of."""
    return Call("GET", "/v1/edges")


def get_edge(name: str) -> Call[types.EdgeDetail]:
    """An edge, with what its DNS does and the certificates that it meets. It is the edge as the list of
    edges has it, and what it tells of its DNS and of certificates besides.

    Args:
        name: The edge's name.
    """
    return Call("GET", f"/v1/edges/{segment(name)}")


def forget_edge(name: str) -> Call[None]:
    """Forget an edge that is gone for good. It no longer counts as unreachable. Should it report again,
    it is known again. An edge that is live is not forgotten.

    Args:
        name: The edge's name.
    """
    return Call("DELETE", f"/v1/edges/{segment(name)}", content=Content.NOTHING)


def list_balancers() -> Call[types.BalancerList]:
    """List the balancers heard of in the last hour, by region and name. What each said of itself in its
    last report. Answered from memory, also while the database is down.
    """
    return Call("GET", "/v1/balancers")


def get_inside(*, region: types.Name | None = None) -> Call[types.InsideList]:
    """List model servers and tenants as regions' balancers show them. Each balancer shows its own every
    other second: of several, each has its own counts. Answered from memory, also while the database
    is down.

    Args:
        region: Only this region; left out: all.
    """
    return Call("GET", "/v1/balancers/inside", parameters={"region": region})


def handoff_keys() -> Call[dict[str, Any]]:
    """The keys by which signed handoffs are verified. For everybody: public keys alone, without the
    names of edges. Every edge publishes them too, at `/.well-known/gtm/jwks.json`.
    """
    return Call("GET", "/v1/handoff/jwks.json")


def get_status() -> Call[types.StatusView]:
    """Revision in force, and which edges have it. Answered from memory, also while the database is down."""
    return Call("GET", "/v1/status")


def get_health(*, region: types.Name | None = None) -> Call[types.HealthView]:
    """Health of every region and endpoint, by vantage. As the edges vote; answered from memory, also
    while the database is down.

    Args:
        region: Only this region; left out: all.
    """
    return Call("GET", "/v1/health", parameters={"region": region})


def list_health_changes(
    *,
    region: types.Name | None = None,
    endpoint: str | None = None,
    vantage: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> PagedCall[types.ChangePage, types.ChangeView]:
    """Verdicts that changed, the newest first. There are changes of each edge and of all edges together,
    with what the probe met. They are kept for as long as control is told to.

    Args:
        region: Only this region; left out: all.
        endpoint: Only the endpoint of this URL.
        vantage: Only this edge; `*`: all together.
        since: From then on.
        until: Until before then; left out: now.
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
    """
    return PagedCall(
        "GET",
        "/v1/health/changes",
        parameters={
            "region": region,
            "endpoint": endpoint,
            "vantage": vantage,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        },
    )


def list_health_steps(
    *,
    region: types.Name,
    endpoint: str | None = None,
    vantage: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> PagedCall[types.StepsPage, types.SeriesView]:
    """How a region's probes ended, five minutes by five minutes. The answer has each endpoint as every
    edge sees it, over at most a day. Times are control's.

    Args:
        region: The region.
        endpoint: Only the endpoint of this URL.
        vantage: Only this edge; `*`: all together.
        since: From then on; left out: an hour before `until`.
        until: Until before then; left out: now.
        limit: Most items in the answer.
        cursor: `next_cursor` of the answer before, to go on behind it.
    """
    return PagedCall(
        "GET",
        "/v1/health/steps",
        parameters={
            "region": region,
            "endpoint": endpoint,
            "vantage": vantage,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        },
    )


def report_load(body: dict[str, Any]) -> Call[None]:
    """Report the load of regions. One report, or up to 1000 as `reports`. What is malformed, or of
    another region than the token is bound to, is dropped and listed in a 422; all the rest counts.
    Fields of ORCA load reports (xDS) are accepted by their names in the .proto and in JSON.
    """
    return Call("POST", "/v1/load-reports", body=body, content=Content.NOTHING)


def get_load(*, region: types.Name | None = None) -> Call[types.LoadView]:
    """Load and usable capacity of every region, by service. It also says how the capacity comes about.
    It is answered from memory, also while the database is down.

    Args:
        region: Only this region; left out: all.
    """
    return Call("GET", "/v1/load", parameters={"region": region})


def get_latency(
    *,
    client: str | None = None,
    country: str | None = None,
    lat: float | None = None,
    lon: float | None = None,
) -> Call[types.LatencyView]:
    """Measured round trips, and estimates for a client. For the client at an address, in a country, or
    at coordinates: the estimated round trip to every region, what it rests on, and what was measured.
    Answered from memory, also while the database is down.

    Args:
        client: An IP address.
        country: ISO 3166-1 alpha-2; its middle stands for it.
        lat: Degrees; with `lon`.
        lon: Degrees; with `lat`.
    """
    return Call(
        "GET", "/v1/latency", parameters={"client": client, "country": country, "lat": lat, "lon": lon}
    )


def forget_latency(body: types.ForgetSchema) -> Call[None]:
    """Forget what a token taught of round trips. What its edges or balancers measured, and the locations
    that they dispute, leave the next table. A token that is revoked is forgotten by itself; this is
    for one that goes on, because it was wrong for a while.
    """
    return Call("POST", "/v1/latency:forget", body=body, content=Content.NOTHING)


def get_plan() -> Call[types.PlanView]:
    """The last plan, and what it rests on. Made anew every second; answered from memory, also while the
    database is down.
    """
    return Call("GET", "/v1/plan")


def get_plan_history(
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    region: types.Name | None = None,
    column: Literal[
        "minutes",
        "demand",
        "planned",
        "away",
        "refused",
        "use",
        "most_use",
        "price_ms",
        "most_price_ms",
        "exhausted",
    ]
    | None = None,
) -> Call[types.PlanHistoryView]:
    """What the planner decided, by region and time. Recorded minute by minute, as long as demand is
    (`GTM_DEMAND_DAYS`), and joined to steps. Regions that were deleted since are among them.

    Args:
        since: From then on; left out: 24 hours ago.
        until: Until before then; left out: now.
        region: Only this region; left out: all.
        column: Only this of each step; left out: all, which is much of many regions.
    """
    return Call(
        "GET",
        "/v1/plan/history",
        parameters={"since": since, "until": until, "region": region, "column": column},
    )


def get_top() -> Call[types.TopView]:
    """Everything at a glance, for one poll a second. Regions, spillover, refusals, the plan; answered
    from memory, also while the database is down.
    """
    return Call("GET", "/v1/top")


def get_lists(
    *, service: types.Name | None = None, country: types.CountryCode | None = None
) -> Call[types.ListsView]:
    """The regions that requests may be sent to, for proxies that choose by themselves. What a decision
    could answer for such requests, by the same function, with health and plan as they are now: never
    a region outside of the fence. For each service a list of each data class, and one of requests of
    all of them. 503: no edge says what is up.

    Args:
        service: Only this service; left out: all.
        country: Where the clients are; left out: anywhere, so that the fence is the intersection of
            those of all places.
    """
    return Call("GET", "/v1/lists", parameters={"service": service, "country": country})


def healthz() -> Call[types.Liveness]:
    """Whether the process runs. Always 200: no other part is asked, the database least of all."""
    return Call("GET", "/healthz")


def readyz() -> Call[types.Readiness]:
    """Whether answers are correct. The database would take a change, the policy in it compiled and is
    being published, and this control is the active one.
    """
    return Call("GET", "/readyz")


def metrics() -> Call[str]:
    """Prometheus metrics. Outside the networks of `GTM_METRICS_ALLOW` (by default this machine), for
    tokens of role `viewer`.
    """
    return Call("GET", "/metrics", content=Content.TEXT)
