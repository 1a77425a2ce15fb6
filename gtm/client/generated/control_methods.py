"""Each call of the control API as a method, for threads and for asyncio. Written by `make client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from gtm.client.generated import control_calls as calls
from gtm.client.sessions import AsyncSession, Session

if TYPE_CHECKING:
    from gtm.client.generated import control_types as types


class ControlMethods(Session):
    """What can be asked, one method each."""

    def get_policy(self, *, admin_states: bool | None = None) -> types.PolicyView:
        """Export the whole policy. JSON, or YAML for `Accept: application/yaml`. Regions carry their admin
        state and zones their challenges only if asked for, since applying an export must not undo a drain
        or delete a challenge made since.

        Args:
            admin_states: Include the regions' admin states and the zones' challenges.
        """
        return self.send(calls.get_policy(admin_states=admin_states)).value

    def apply_policy(
        self,
        body: types.ApplyRequest,
        *,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.PolicyChanged:
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
        return self.send(
            calls.apply_policy(
                body,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def list_revisions(self, *, below: int | None = None) -> Iterator[types.RevisionSchema]:
        """List revisions, newest first. A page of revisions: who made each, when, why, and what it changed
        in a line. Every item, page after page.

        Args:
            below: Only revisions of lower numbers.
        """
        return self.items(calls.list_revisions(below=below, limit=1000))

    def get_revision(self, number: int) -> types.RevisionView:
        """Get a revision with its policy. A revision, with the whole policy as it was.

        Args:
            number: The revision's number.
        """
        return self.send(calls.get_revision(number)).value

    def diff_revision(self, number: int, *, against: int | None = None) -> types.DiffView:
        """What differs between two revisions. Get the differences between revision `against` and revision
        `number`.

        Args:
            number: The revision's number.
            against: 0: the empty policy. Left out: the revision before.
        """
        return self.send(calls.diff_revision(number, against=against)).value

    def rollback_revision(
        self,
        number: int,
        body: types.RollbackRequest | None | None = None,
        *,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.PolicyChanged:
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
        return self.send(
            calls.rollback_revision(
                number,
                body,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def accept_older(self, body: types.AcceptOlderRequest) -> types.AcceptedView:
        """Say that going back to what the database has is meant. For a database that was restored from a
        backup: edges and balancers that hold revisions which it has lost keep them until then, and are
        sent its own at once afterwards. Whoever does this may open a fence by it: nobody can tell what
        was lost. 409: nobody holds any.
        """
        return self.send(calls.accept_older(body)).value

    def drain_region(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
    ) -> types.ResourceChangedRegionDocument:
        """Take no new clients in a region.

        Args:
            comment: Why; kept with the revision.
            force: Make the change although it breaks safety rules; needs `force_reason`.
            force_reason: Why it has to be made all the same; kept with the revision.
        """
        return self.send(
            calls.drain_region(name, comment=comment, force=force, force_reason=force_reason)
        ).value

    def activate_region(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
    ) -> types.ResourceChangedRegionDocument:
        """Let a region take clients again.

        Args:
            comment: Why; kept with the revision.
            force: Make the change although it breaks safety rules; needs `force_reason`.
            force_reason: Why it has to be made all the same; kept with the revision.
        """
        return self.send(
            calls.activate_region(name, comment=comment, force=force, force_reason=force_reason)
        ).value

    def disable_region(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
    ) -> types.ResourceChangedRegionDocument:
        """Take a region out of service, and stop probing it.

        Args:
            comment: Why; kept with the revision.
            force: Make the change although it breaks safety rules; needs `force_reason`.
            force_reason: Why it has to be made all the same; kept with the revision.
        """
        return self.send(
            calls.disable_region(name, comment=comment, force=force, force_reason=force_reason)
        ).value

    def list_jurisdictions(
        self, *, countries: bool | None = None, managed_by: str | None = None
    ) -> Iterator[types.JurisdictionView]:
        """List jurisdictions, by name. The shipped ones (read-only) and the operators' own; every country
        code too, if asked for. Every item, page after page.

        Args:
            countries: Also every country, with notes on its law.
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_jurisdictions(countries=countries, managed_by=managed_by, limit=1000))

    def get_jurisdictions(self, name: str, *, if_none_match: str | None = None) -> types.JurisdictionView:
        """Get a jurisdiction or country. A jurisdiction with its members, past memberships and sources; a
        country counts as one.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_jurisdictions(name, if_none_match=if_none_match)).value

    def put_jurisdictions(
        self,
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
    ) -> types.ResourceChangedJurisdictionDocument:
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
        return self.send(
            calls.put_jurisdictions(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_jurisdictions(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_jurisdictions(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_residency(
        self,
        *,
        at: datetime | str | None = None,
        tenant: types.Name | None = None,
        data_class: types.Name | None = None,
        client: types.JurisdictionName | None = None,
        service: str | None = None,
    ) -> Iterator[types.MatrixRow]:
        """Services by jurisdictions of clients: who may serve them, and by which rules. By the enforced
        rules of the policy in force, for clients whose country is certain. Columns are the jurisdictions
        that rules name for their clients (8 at most, those that most rules name first), or the one asked
        for; then all other countries, and clients that nobody can locate. Which of these regions is up or
        has room is no matter of this. Every item, page after page.

        Args:
            at: When: now (left out), or later.
            tenant: What requests state; left out: none, so that every rule about tenants counts.
            data_class: Likewise.
            client: A jurisdiction or country: the only column.
            service: Only services whose names begin so.
        """
        return self.items(
            calls.get_residency(
                at=at, tenant=tenant, data_class=data_class, client=client, service=service, limit=100
            )
        )

    def get_residency_calendar(
        self,
        *,
        at: datetime | str | None = None,
        tenant: types.Name | None = None,
        data_class: types.Name | None = None,
        limit: int | None = None,
    ) -> types.CalendarView:
        """Rules and memberships that begin or end, and what each such moment changes. The next first. At
        each, the fences of up to 10 services just before and from then on are compared. Memberships are
        those of all jurisdictions, also such as no rule names.

        Args:
            at: When: now (left out), or later.
            tenant: What requests state; left out: none, so that every rule about tenants counts.
            data_class: Likewise.
            limit: Most moments in the answer.
        """
        return self.send(
            calls.get_residency_calendar(at=at, tenant=tenant, data_class=data_class, limit=limit)
        ).value

    def get_monitored_rules(self, *, since: datetime | str | None = None) -> types.MonitoredView:
        """Rules in monitor mode, and what each would have refused. Recorded demand, judged by the policy in
        force as of now, with each of the rules enforced by itself. A request is narrowed if it would have
        lost some of its regions, and refused if it would have lost all. Rules that would have been about
        nothing are there too.

        Args:
            since: From then on; left out: 24 hours ago.
        """
        return self.send(calls.get_monitored_rules(since=since)).value

    def put_regions(
        self,
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
    ) -> types.ResourceChangedRegionDocument:
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
        return self.send(
            calls.put_regions(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_regions(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_regions(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_regions(self, name: str, *, if_none_match: str | None = None) -> types.RegionDocument:
        """Get a region.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_regions(name, if_none_match=if_none_match)).value

    def list_regions(self, *, managed_by: str | None = None) -> Iterator[types.RegionDocument]:
        """List regions, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_regions(managed_by=managed_by, limit=1000))

    def put_zones(
        self,
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
    ) -> types.ResourceChangedZoneDocument:
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
        return self.send(
            calls.put_zones(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_zones(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_zones(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_zones(self, name: str, *, if_none_match: str | None = None) -> types.ZoneDocument:
        """Get a zone.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_zones(name, if_none_match=if_none_match)).value

    def list_zones(self, *, managed_by: str | None = None) -> Iterator[types.ZoneDocument]:
        """List zones, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_zones(managed_by=managed_by, limit=1000))

    def put_services(
        self,
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
    ) -> types.ResourceChangedServiceDocument:
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
        return self.send(
            calls.put_services(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_services(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_services(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_services(self, name: str, *, if_none_match: str | None = None) -> types.ServiceDocument:
        """Get a service.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_services(name, if_none_match=if_none_match)).value

    def list_services(self, *, managed_by: str | None = None) -> Iterator[types.ServiceDocument]:
        """List services, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_services(managed_by=managed_by, limit=1000))

    def put_residency_rules(
        self,
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
    ) -> types.ResourceChangedResidencyRuleDocument:
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
        return self.send(
            calls.put_residency_rules(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_residency_rules(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_residency_rules(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_residency_rules(
        self, name: str, *, if_none_match: str | None = None
    ) -> types.ResidencyRuleDocument:
        """Get a residency rule.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_residency_rules(name, if_none_match=if_none_match)).value

    def list_residency_rules(self, *, managed_by: str | None = None) -> Iterator[types.ResidencyRuleDocument]:
        """List residency rules, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_residency_rules(managed_by=managed_by, limit=1000))

    def put_spillover_rules(
        self,
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
    ) -> types.ResourceChangedSpilloverRuleDocument:
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
        return self.send(
            calls.put_spillover_rules(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_spillover_rules(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_spillover_rules(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_spillover_rules(
        self, name: str, *, if_none_match: str | None = None
    ) -> types.SpilloverRuleDocument:
        """Get a spillover rule.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_spillover_rules(name, if_none_match=if_none_match)).value

    def list_spillover_rules(self, *, managed_by: str | None = None) -> Iterator[types.SpilloverRuleDocument]:
        """List spillover rules, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_spillover_rules(managed_by=managed_by, limit=1000))

    def put_tenants(
        self,
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
    ) -> types.ResourceChangedTenantDocument:
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
        return self.send(
            calls.put_tenants(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_tenants(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_tenants(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_tenants(self, name: str, *, if_none_match: str | None = None) -> types.TenantDocument:
        """Get a tenant.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_tenants(name, if_none_match=if_none_match)).value

    def list_tenants(self, *, managed_by: str | None = None) -> Iterator[types.TenantDocument]:
        """List tenants, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_tenants(managed_by=managed_by, limit=1000))

    def put_data_classes(
        self,
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
    ) -> types.ResourceChangedDataClassDocument:
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
        return self.send(
            calls.put_data_classes(
                name,
                body,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                if_none_match=if_none_match,
                managed_by=managed_by,
            )
        ).value

    def delete_data_classes(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return self.send(
            calls.delete_data_classes(
                name,
                comment=comment,
                force=force,
                force_reason=force_reason,
                on_managed=on_managed,
                managed_reason=managed_reason,
                if_match=if_match,
                managed_by=managed_by,
            )
        ).value

    def get_data_classes(self, name: str, *, if_none_match: str | None = None) -> types.DataClassDocument:
        """Get a data class.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return self.send(calls.get_data_classes(name, if_none_match=if_none_match)).value

    def list_data_classes(self, *, managed_by: str | None = None) -> Iterator[types.DataClassDocument]:
        """List data classes, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_data_classes(managed_by=managed_by, limit=1000))

    def get_challenge(self, zone: types.HostName, name: str) -> types.ChallengeView:
        """Get a challenge's records. What is there, and whether all edges answer so.

        Args:
            zone: The zone's name.
            name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
        """
        return self.send(calls.get_challenge(zone, name)).value

    def put_challenge(self, zone: types.HostName, name: str, body: types.ChallengePut) -> types.ChallengeView:
        """Write a challenge's records. For ACME clients (DNS-01, RFC 8555 §8.4). Idempotent. Whole writes of
        the zone, by whomever, leave challenges as they are, and nobody's management of the zone stands
        against them. The edges answer with it once `sync` says `IN_SYNC`.

        Args:
            zone: The zone's name.
            name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
        """
        return self.send(calls.put_challenge(zone, name, body)).value

    def delete_challenge(self, zone: types.HostName, name: str, *, value: str | None = None) -> types.Changed:
        """Delete a challenge's records. What is not there is deleted all the same: clients clean up more
        than once.

        Args:
            zone: The zone's name.
            name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
            value: Only this one; left out: all.
        """
        return self.send(calls.delete_challenge(zone, name, value=value)).value

    def search_resources(
        self,
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
    ) -> Iterator[types.InventoryItem]:
        """Search resources of all kinds. By kind, then by name. Those are found whose documents hold every
        word of `search`, in whatever field. Every item, page after page.

        Args:
            kind: Only of this kind.
            search: Words, in any order and case.
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.search_resources(kind=kind, search=search, managed_by=managed_by, limit=1000))

    def list_names(self, *, limit: int | None = None) -> types.Names:
        """What requests may name. Names alone, from memory: to choose from. Where regions are, for maps.

        Args:
            limit: Most items in the answer.
        """
        return self.send(calls.list_names(limit=limit)).value

    def list_references(
        self,
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
    ) -> types.References:
        """What refers to a resource. Of the policy in force. Nothing refers to what is not there."""
        return self.send(calls.list_references(kind=kind, name=name)).value

    def read_policy(self, body: types.ReadRequest) -> types.ReadView:
        """Read a draft written as YAML. What is wrong with it, line by line, as `gtm check` says it, and
        what it says as JSON. Changes nothing. A long text, or one with anchors, is read in a process with
        bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at
        work.
        """
        return self.send(calls.read_policy(body)).value

    def list_managers(self) -> types.ManagerList:
        """List the tools that manage resources. Answered from memory, also while the database is down."""
        return self.send(calls.list_managers()).value

    def reassign_managers(self, body: types.ReassignRequest) -> types.ReassignView:
        """Let another tool manage resources, or none. The resources stay as they are, and there is no
        revision. All or nothing: 409 if one of them is not managed by `manager`, 404 if that manages
        nothing.
        """
        return self.send(calls.reassign_managers(body)).value

    def list_fence_approvals(self) -> types.ApprovalList:
        """List approvals, the latest first. Those that have ended included."""
        return self.send(calls.list_fence_approvals()).value

    def approve_fence(self, body: types.ApprovalRequest) -> types.ApprovalView:
        """Approve of a change that opens a fence. It counts only if nobody has both in hand, what approves
        and what makes the change: their owners, and whoever made them.
        """
        return self.send(calls.approve_fence(body)).value

    def simulate_policy(self, body: types.SimulateRequest) -> types.SimulationView:
        """Try a draft, or a scenario, with traffic. What the policy in force makes of it, and what the draft
        would (left out: the same policy) if a `scenario` came true: regions that fail or drain, other
        capacity, more demand, a day to come. Else health, latency and load are as they are now. Shares,
        latency, spillover, refusals, room, and what moves. Changes nothing. It is worked out in a process
        with bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at
        work.
        """
        return self.send(calls.simulate_policy(body)).value

    def plan_policy(
        self,
        body: types.PlanRequest,
        *,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        managed_by: str | None = None,
    ) -> types.PolicyChanged:
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
        return self.send(
            calls.plan_policy(
                body, on_managed=on_managed, managed_reason=managed_reason, managed_by=managed_by
            )
        ).value

    def explain_route(self, body: types.ExplainRequest) -> types.ExplanationView:
        """Explain a decision, by the policy in force or by a draft. With health, plan and latency as they
        are now at control, and with what an edge would send: the DNS answers, or the redirect. Edges
        explain what they answer at their own `GET /v1/route?explain=1`. A draft is looked at in a process
        of its own, as by `policy:simulate`.
        """
        return self.send(calls.explain_route(body)).value

    def get_demand(
        self,
        *,
        limit: int | None = None,
        at: datetime | str | None = None,
        region: types.Name | None = None,
        service: types.Name | None = None,
        tenant: types.Name | None = None,
        data_class: types.Name | None = None,
        priority: types.Priority | None = None,
        client: types.JurisdictionName | None = None,
    ) -> types.DemandView:
        """Demand now or then, by region, ranking class and demand cell. Now: smoothed over 3 s; an edge that
        stops reporting counts for 30 s more; from memory. Then (`at`): of the recorded minute in which
        that moment lies or, where that was not recorded, of the last one up to an hour before.

        Args:
            limit: Most rows in the answer.
            at: When; left out: now.
            region: Only this region; left out: all.
            service: Only this service.
            tenant: Only requests that state this one.
            data_class: Likewise.
            priority: Only requests of this one.
            client: Only clients in this country, or in the countries that this jurisdiction has at that
                time.
        """
        return self.send(
            calls.get_demand(
                limit=limit,
                at=at,
                region=region,
                service=service,
                tenant=tenant,
                data_class=data_class,
                priority=priority,
                client=client,
            )
        ).value

    def get_demand_timeline(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> types.TimelineView:
        """How many requests were recorded, step by step. In as many steps of 1, 5, 15 or 60 minutes, 6
        hours, a day or a week as 300 are enough for.

        Args:
            since: From then on; left out: 24 hours ago.
            until: Until before then; left out: now.
        """
        return self.send(calls.get_demand_timeline(since=since, until=until)).value

    def get_recorded_demand(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> types.RecordedView:
        """Recorded demand by demand cell, with its peak and a timeline. Minutes that were not recorded count
        as no time, not as idle.

        Args:
            since: From then on; left out: 24 hours ago.
            until: Until before then; left out: now.
        """
        return self.send(calls.get_recorded_demand(since=since, until=until)).value

    def list_dnssec(self) -> types.ZoneKeysList:
        """Keys of all signed zones, by zone. Every zone that has keys, also one that the policy no longer
        has signed, and why keys cannot be made now, if so.
        """
        return self.send(calls.list_dnssec()).value

    def get_dnssec(self, zone: types.HostName) -> types.ZoneKeysSchema:
        """Keys of a zone. Their states and next steps, and the DS records that the parent should have.

        Args:
            zone: The zone's name.
        """
        return self.send(calls.get_dnssec(zone)).value

    def roll_dnssec_key(self, zone: types.HostName, body: types.RollRequest) -> types.ZoneKeysSchema:
        """Replace a key. Begins the replacement, or makes one under way urgent; the steps follow by
        themselves, but for the DS record of a new key-signing key.

        Args:
            zone: The zone's name.
        """
        return self.send(calls.roll_dnssec_key(zone, body)).value

    def confirm_ds(self, zone: types.HostName) -> types.ZoneKeysSchema:
        """Confirm that the parent has the DS record. Of the newest key-signing key. Where control has a
        resolver (`GTM_DNSSEC_RESOLVER`) it sees that itself.

        Args:
            zone: The zone's name.
        """
        return self.send(calls.confirm_ds(zone)).value

    def withdraw_ds(self, zone: types.HostName, body: types.WithdrawRequest) -> types.ZoneKeysSchema:
        """Ask the parent to drop its DS records. Publishes the CDS and CDNSKEY records for that (RFC 8078),
        before DNSSEC is switched off; with `withdrawing` false, the usual ones again.

        Args:
            zone: The zone's name.
        """
        return self.send(calls.withdraw_ds(zone, body)).value

    def create_token(self, body: types.TokenRequest) -> types.TokenCreated:
        """Make a token. The answer holds its text, which is shown this once and stored nowhere."""
        return self.send(calls.create_token(body)).value

    def list_tokens(self) -> Iterator[types.TokenView]:
        """List tokens, by name. Revoked and expired ones included, the latest of a name first. Every item,
        page after page.
        """
        return self.items(calls.list_tokens(limit=1000))

    def rotate_token(self, token: str, body: types.RotateRequest | None | None = None) -> types.TokenCreated:
        """Replace a token's text. The new token has the name, role, expiry and owner of the old one, which
        works until the grace is over. The answer holds its text, which is shown this once and stored
        nowhere.

        Args:
            token: Its name.
        """
        return self.send(calls.rotate_token(token, body)).value

    def revoke_token(self, token: str) -> types.TokenView:
        """Revoke a token. For good; by name, with those that it has replaced. It stops working here at once,
        and at edges as soon as the feed has told them. Its name is free again.

        Args:
            token: Its id or its name.
        """
        return self.send(calls.revoke_token(token)).value

    def create_sign_in_link(self) -> types.LinkView:
        """Make a link that signs in at the dashboard. It works once, within five minutes, at the control
        that made it, for whoever holds the token.
        """
        return self.send(calls.create_sign_in_link()).value

    def list_sessions(self) -> types.SessionList:
        """List who is signed in at the dashboard. An admin sees all sessions, others their own."""
        return self.send(calls.list_sessions()).value

    def end_session(self, session: str) -> None:
        """Sign a browser out. An admin may end any session, others their own.

        Args:
            session: Its id.
        """
        self.send(calls.end_session(session))

    def end_sessions(self, name: str) -> types.Ended:
        """Sign somebody out everywhere. End all sessions of one name.

        Args:
            name: What they are called in the list of sessions.
        """
        return self.send(calls.end_sessions(name)).value

    def list_audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        forced: bool | None = None,
        oldest_first: bool | None = None,
    ) -> Iterator[types.EntryView]:
        """Search the audit log, the newest first. Every change and every forced action. What is about
        tokens, sessions and sign-ins only admins see. Every item, page after page.

        Args:
            who: Part of who did it, in any case.
            action: An action (`region.drain`), or a family of them (`region`).
            target: Part of what it was done to, in any case.
            since: From then on.
            until: Until before then.
            forced: Only what overruled safety rules, or only what did not.
            oldest_first: The other way round.
        """
        return self.items(
            calls.list_audit(
                who=who,
                action=action,
                target=target,
                since=since,
                until=until,
                forced=forced,
                oldest_first=oldest_first,
                limit=1000,
            )
        )

    def export_audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        forced: bool | None = None,
        oldest_first: bool | None = None,
    ) -> Iterator[Any]:
        """The same as lines of JSON, without pages. All that is found, as it is read.

        Args:
            who: Part of who did it, in any case.
            action: An action (`region.drain`), or a family of them (`region`).
            target: Part of what it was done to, in any case.
            since: From then on.
            until: Until before then.
            forced: Only what overruled safety rules, or only what did not.
            oldest_first: The other way round.
        """
        return self.lines(
            calls.export_audit(
                who=who,
                action=action,
                target=target,
                since=since,
                until=until,
                forced=forced,
                oldest_first=oldest_first,
            )
        )

    def list_edges(self) -> types.EdgeList:
        """List the edges, by name. All that were ever heard of."""
        return self.send(calls.list_edges()).value

    def get_edge(self, name: str) -> types.EdgeDetail:
        """An edge, with what its DNS does and the certificates that it meets. One of them.

        Args:
            name: The edge's name.
        """
        return self.send(calls.get_edge(name)).value

    def forget_edge(self, name: str) -> None:
        """Forget an edge that is gone for good. It no longer counts as unreachable. Should it report again,
        it is known again. An edge that is live is not forgotten.

        Args:
            name: The edge's name.
        """
        self.send(calls.forget_edge(name))

    def list_balancers(self) -> types.BalancerList:
        """List the balancers heard of in the last hour, by region and name. What each said of itself in its
        last report. Answered from memory, also while the database is down.
        """
        return self.send(calls.list_balancers()).value

    def handoff_keys(self) -> dict[str, Any]:
        """The keys by which signed handoffs are verified. For everybody: public keys alone, without the
        names of edges. Every edge publishes them too, at `/.well-known/gtm/jwks.json`.
        """
        return self.send(calls.handoff_keys()).value

    def get_status(self) -> types.StatusView:
        """Revision in force, and which edges have it. Answered from memory, also while the database is down."""
        return self.send(calls.get_status()).value

    def get_health(self, *, region: types.Name | None = None) -> types.HealthView:
        """Health of every region and endpoint, by vantage. As the edges vote; answered from memory, also
        while the database is down.

        Args:
            region: Only this region; left out: all.
        """
        return self.send(calls.get_health(region=region)).value

    def list_health_changes(
        self,
        *,
        region: types.Name | None = None,
        endpoint: str | None = None,
        vantage: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Iterator[types.ChangeView]:
        """Verdicts that changed, the newest first. Of each edge and of all together, with what the probe
        met. Kept for as long as control is told. Every item, page after page.

        Args:
            region: Only this region; left out: all.
            endpoint: Only the endpoint of this URL.
            vantage: Only this edge; `*`: all together.
            since: From then on.
            until: Until before then; left out: now.
        """
        return self.items(
            calls.list_health_changes(
                region=region, endpoint=endpoint, vantage=vantage, since=since, until=until, limit=1000
            )
        )

    def list_health_steps(
        self,
        *,
        region: types.Name,
        endpoint: str | None = None,
        vantage: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Iterator[types.SeriesView]:
        """How a region's probes ended, five minutes by five minutes. Of each endpoint as every edge sees it,
        over at most a day. Times are control's. Every item, page after page.

        Args:
            region: The region.
            endpoint: Only the endpoint of this URL.
            vantage: Only this edge; `*`: all together.
            since: From then on; left out: an hour before `until`.
            until: Until before then; left out: now.
        """
        return self.items(
            calls.list_health_steps(
                region=region, endpoint=endpoint, vantage=vantage, since=since, until=until, limit=1000
            )
        )

    def report_load(self, body: dict[str, Any]) -> None:
        """Report the load of regions. One report, or up to 1000 as `reports`. What is malformed, or of
        another region than the token is bound to, is dropped and listed in a 422; all the rest counts.
        Fields of ORCA load reports (xDS) are accepted by their names in the .proto and in JSON.
        """
        self.send(calls.report_load(body))

    def get_load(self, *, region: types.Name | None = None) -> types.LoadView:
        """Load and usable capacity of every region, by service. And how the capacity comes about. Answered
        from memory, also while the database is down.

        Args:
            region: Only this region; left out: all.
        """
        return self.send(calls.get_load(region=region)).value

    def get_latency(
        self,
        *,
        client: str | None = None,
        country: str | None = None,
        lat: float | None = None,
        lon: float | None = None,
    ) -> types.LatencyView:
        """Measured round trips, and estimates for a client. For the client at an address, in a country, or
        at coordinates: the estimated round trip to every region, what it rests on, and what was measured.
        Answered from memory, also while the database is down.

        Args:
            client: An IP address.
            country: ISO 3166-1 alpha-2; its middle stands for it.
            lat: Degrees; with `lon`.
            lon: Degrees; with `lat`.
        """
        return self.send(calls.get_latency(client=client, country=country, lat=lat, lon=lon)).value

    def forget_latency(self, body: types.ForgetSchema) -> None:
        """Forget what a token taught of round trips. What its edges or balancers measured, and the locations
        that they dispute, leave the next table. A token that is revoked is forgotten by itself; this is
        for one that goes on, because it was wrong for a while.
        """
        self.send(calls.forget_latency(body))

    def get_plan(self) -> types.PlanView:
        """The last plan, and what it rests on. Made anew every second; answered from memory, also while the
        database is down.
        """
        return self.send(calls.get_plan()).value

    def get_plan_history(
        self,
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
    ) -> types.PlanHistoryView:
        """What the planner decided, by region and time. Recorded minute by minute, as long as demand is
        (`GTM_DEMAND_DAYS`), and joined to steps. Regions that were deleted since are among them.

        Args:
            since: From then on; left out: 24 hours ago.
            until: Until before then; left out: now.
            region: Only this region; left out: all.
            column: Only this of each step; left out: all, which is much of many regions.
        """
        return self.send(calls.get_plan_history(since=since, until=until, region=region, column=column)).value

    def get_top(self) -> types.TopView:
        """Everything at a glance, for one poll a second. Regions, spillover, refusals, the plan; answered
        from memory, also while the database is down.
        """
        return self.send(calls.get_top()).value

    def healthz(self) -> types.Liveness:
        """Whether the process runs. Always 200: no other part is asked, the database least of all."""
        return self.send(calls.healthz()).value

    def readyz(self) -> types.Readiness:
        """Whether answers are correct. The database would take a change, the policy in it compiled and is
        being published, and this control is the active one.
        """
        return self.send(calls.readyz()).value

    def metrics(self) -> str:
        """Prometheus metrics. Outside the networks of `GTM_METRICS_ALLOW` (by default this machine), for
        tokens of role `viewer`.
        """
        return self.send(calls.metrics()).value


class AsyncControlMethods(AsyncSession):
    """What can be asked, one method each."""

    async def get_policy(self, *, admin_states: bool | None = None) -> types.PolicyView:
        """Export the whole policy. JSON, or YAML for `Accept: application/yaml`. Regions carry their admin
        state and zones their challenges only if asked for, since applying an export must not undo a drain
        or delete a challenge made since.

        Args:
            admin_states: Include the regions' admin states and the zones' challenges.
        """
        return (await self.send(calls.get_policy(admin_states=admin_states))).value

    async def apply_policy(
        self,
        body: types.ApplyRequest,
        *,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.PolicyChanged:
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
        return (
            await self.send(
                calls.apply_policy(
                    body,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    def list_revisions(self, *, below: int | None = None) -> AsyncIterator[types.RevisionSchema]:
        """List revisions, newest first. A page of revisions: who made each, when, why, and what it changed
        in a line. Every item, page after page.

        Args:
            below: Only revisions of lower numbers.
        """
        return self.items(calls.list_revisions(below=below, limit=1000))

    async def get_revision(self, number: int) -> types.RevisionView:
        """Get a revision with its policy. A revision, with the whole policy as it was.

        Args:
            number: The revision's number.
        """
        return (await self.send(calls.get_revision(number))).value

    async def diff_revision(self, number: int, *, against: int | None = None) -> types.DiffView:
        """What differs between two revisions. Get the differences between revision `against` and revision
        `number`.

        Args:
            number: The revision's number.
            against: 0: the empty policy. Left out: the revision before.
        """
        return (await self.send(calls.diff_revision(number, against=against))).value

    async def rollback_revision(
        self,
        number: int,
        body: types.RollbackRequest | None | None = None,
        *,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.PolicyChanged:
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
        return (
            await self.send(
                calls.rollback_revision(
                    number,
                    body,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def accept_older(self, body: types.AcceptOlderRequest) -> types.AcceptedView:
        """Say that going back to what the database has is meant. For a database that was restored from a
        backup: edges and balancers that hold revisions which it has lost keep them until then, and are
        sent its own at once afterwards. Whoever does this may open a fence by it: nobody can tell what
        was lost. 409: nobody holds any.
        """
        return (await self.send(calls.accept_older(body))).value

    async def drain_region(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
    ) -> types.ResourceChangedRegionDocument:
        """Take no new clients in a region.

        Args:
            comment: Why; kept with the revision.
            force: Make the change although it breaks safety rules; needs `force_reason`.
            force_reason: Why it has to be made all the same; kept with the revision.
        """
        return (
            await self.send(calls.drain_region(name, comment=comment, force=force, force_reason=force_reason))
        ).value

    async def activate_region(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
    ) -> types.ResourceChangedRegionDocument:
        """Let a region take clients again.

        Args:
            comment: Why; kept with the revision.
            force: Make the change although it breaks safety rules; needs `force_reason`.
            force_reason: Why it has to be made all the same; kept with the revision.
        """
        return (
            await self.send(
                calls.activate_region(name, comment=comment, force=force, force_reason=force_reason)
            )
        ).value

    async def disable_region(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
    ) -> types.ResourceChangedRegionDocument:
        """Take a region out of service, and stop probing it.

        Args:
            comment: Why; kept with the revision.
            force: Make the change although it breaks safety rules; needs `force_reason`.
            force_reason: Why it has to be made all the same; kept with the revision.
        """
        return (
            await self.send(
                calls.disable_region(name, comment=comment, force=force, force_reason=force_reason)
            )
        ).value

    def list_jurisdictions(
        self, *, countries: bool | None = None, managed_by: str | None = None
    ) -> AsyncIterator[types.JurisdictionView]:
        """List jurisdictions, by name. The shipped ones (read-only) and the operators' own; every country
        code too, if asked for. Every item, page after page.

        Args:
            countries: Also every country, with notes on its law.
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_jurisdictions(countries=countries, managed_by=managed_by, limit=1000))

    async def get_jurisdictions(
        self, name: str, *, if_none_match: str | None = None
    ) -> types.JurisdictionView:
        """Get a jurisdiction or country. A jurisdiction with its members, past memberships and sources; a
        country counts as one.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_jurisdictions(name, if_none_match=if_none_match))).value

    async def put_jurisdictions(
        self,
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
    ) -> types.ResourceChangedJurisdictionDocument:
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
        return (
            await self.send(
                calls.put_jurisdictions(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_jurisdictions(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_jurisdictions(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    def get_residency(
        self,
        *,
        at: datetime | str | None = None,
        tenant: types.Name | None = None,
        data_class: types.Name | None = None,
        client: types.JurisdictionName | None = None,
        service: str | None = None,
    ) -> AsyncIterator[types.MatrixRow]:
        """Services by jurisdictions of clients: who may serve them, and by which rules. By the enforced
        rules of the policy in force, for clients whose country is certain. Columns are the jurisdictions
        that rules name for their clients (8 at most, those that most rules name first), or the one asked
        for; then all other countries, and clients that nobody can locate. Which of these regions is up or
        has room is no matter of this. Every item, page after page.

        Args:
            at: When: now (left out), or later.
            tenant: What requests state; left out: none, so that every rule about tenants counts.
            data_class: Likewise.
            client: A jurisdiction or country: the only column.
            service: Only services whose names begin so.
        """
        return self.items(
            calls.get_residency(
                at=at, tenant=tenant, data_class=data_class, client=client, service=service, limit=100
            )
        )

    async def get_residency_calendar(
        self,
        *,
        at: datetime | str | None = None,
        tenant: types.Name | None = None,
        data_class: types.Name | None = None,
        limit: int | None = None,
    ) -> types.CalendarView:
        """Rules and memberships that begin or end, and what each such moment changes. The next first. At
        each, the fences of up to 10 services just before and from then on are compared. Memberships are
        those of all jurisdictions, also such as no rule names.

        Args:
            at: When: now (left out), or later.
            tenant: What requests state; left out: none, so that every rule about tenants counts.
            data_class: Likewise.
            limit: Most moments in the answer.
        """
        return (
            await self.send(
                calls.get_residency_calendar(at=at, tenant=tenant, data_class=data_class, limit=limit)
            )
        ).value

    async def get_monitored_rules(self, *, since: datetime | str | None = None) -> types.MonitoredView:
        """Rules in monitor mode, and what each would have refused. Recorded demand, judged by the policy in
        force as of now, with each of the rules enforced by itself. A request is narrowed if it would have
        lost some of its regions, and refused if it would have lost all. Rules that would have been about
        nothing are there too.

        Args:
            since: From then on; left out: 24 hours ago.
        """
        return (await self.send(calls.get_monitored_rules(since=since))).value

    async def put_regions(
        self,
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
    ) -> types.ResourceChangedRegionDocument:
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
        return (
            await self.send(
                calls.put_regions(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_regions(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_regions(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_regions(self, name: str, *, if_none_match: str | None = None) -> types.RegionDocument:
        """Get a region.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_regions(name, if_none_match=if_none_match))).value

    def list_regions(self, *, managed_by: str | None = None) -> AsyncIterator[types.RegionDocument]:
        """List regions, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_regions(managed_by=managed_by, limit=1000))

    async def put_zones(
        self,
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
    ) -> types.ResourceChangedZoneDocument:
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
        return (
            await self.send(
                calls.put_zones(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_zones(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_zones(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_zones(self, name: str, *, if_none_match: str | None = None) -> types.ZoneDocument:
        """Get a zone.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_zones(name, if_none_match=if_none_match))).value

    def list_zones(self, *, managed_by: str | None = None) -> AsyncIterator[types.ZoneDocument]:
        """List zones, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_zones(managed_by=managed_by, limit=1000))

    async def put_services(
        self,
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
    ) -> types.ResourceChangedServiceDocument:
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
        return (
            await self.send(
                calls.put_services(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_services(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_services(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_services(self, name: str, *, if_none_match: str | None = None) -> types.ServiceDocument:
        """Get a service.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_services(name, if_none_match=if_none_match))).value

    def list_services(self, *, managed_by: str | None = None) -> AsyncIterator[types.ServiceDocument]:
        """List services, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_services(managed_by=managed_by, limit=1000))

    async def put_residency_rules(
        self,
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
    ) -> types.ResourceChangedResidencyRuleDocument:
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
        return (
            await self.send(
                calls.put_residency_rules(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_residency_rules(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_residency_rules(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_residency_rules(
        self, name: str, *, if_none_match: str | None = None
    ) -> types.ResidencyRuleDocument:
        """Get a residency rule.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_residency_rules(name, if_none_match=if_none_match))).value

    def list_residency_rules(
        self, *, managed_by: str | None = None
    ) -> AsyncIterator[types.ResidencyRuleDocument]:
        """List residency rules, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_residency_rules(managed_by=managed_by, limit=1000))

    async def put_spillover_rules(
        self,
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
    ) -> types.ResourceChangedSpilloverRuleDocument:
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
        return (
            await self.send(
                calls.put_spillover_rules(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_spillover_rules(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_spillover_rules(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_spillover_rules(
        self, name: str, *, if_none_match: str | None = None
    ) -> types.SpilloverRuleDocument:
        """Get a spillover rule.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_spillover_rules(name, if_none_match=if_none_match))).value

    def list_spillover_rules(
        self, *, managed_by: str | None = None
    ) -> AsyncIterator[types.SpilloverRuleDocument]:
        """List spillover rules, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_spillover_rules(managed_by=managed_by, limit=1000))

    async def put_tenants(
        self,
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
    ) -> types.ResourceChangedTenantDocument:
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
        return (
            await self.send(
                calls.put_tenants(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_tenants(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_tenants(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_tenants(self, name: str, *, if_none_match: str | None = None) -> types.TenantDocument:
        """Get a tenant.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_tenants(name, if_none_match=if_none_match))).value

    def list_tenants(self, *, managed_by: str | None = None) -> AsyncIterator[types.TenantDocument]:
        """List tenants, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_tenants(managed_by=managed_by, limit=1000))

    async def put_data_classes(
        self,
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
    ) -> types.ResourceChangedDataClassDocument:
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
        return (
            await self.send(
                calls.put_data_classes(
                    name,
                    body,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    if_none_match=if_none_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def delete_data_classes(
        self,
        name: str,
        *,
        comment: str | None = None,
        force: bool | None = None,
        force_reason: str | None = None,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        if_match: str | None = None,
        managed_by: str | None = None,
    ) -> types.Changed:
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
        return (
            await self.send(
                calls.delete_data_classes(
                    name,
                    comment=comment,
                    force=force,
                    force_reason=force_reason,
                    on_managed=on_managed,
                    managed_reason=managed_reason,
                    if_match=if_match,
                    managed_by=managed_by,
                )
            )
        ).value

    async def get_data_classes(
        self, name: str, *, if_none_match: str | None = None
    ) -> types.DataClassDocument:
        """Get a data class.

        Args:
            if_none_match: Only if it has none of these entity tags; `*`: if there is none.
        """
        return (await self.send(calls.get_data_classes(name, if_none_match=if_none_match))).value

    def list_data_classes(self, *, managed_by: str | None = None) -> AsyncIterator[types.DataClassDocument]:
        """List data classes, by name. Every item, page after page.

        Args:
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.list_data_classes(managed_by=managed_by, limit=1000))

    async def get_challenge(self, zone: types.HostName, name: str) -> types.ChallengeView:
        """Get a challenge's records. What is there, and whether all edges answer so.

        Args:
            zone: The zone's name.
            name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
        """
        return (await self.send(calls.get_challenge(zone, name))).value

    async def put_challenge(
        self, zone: types.HostName, name: str, body: types.ChallengePut
    ) -> types.ChallengeView:
        """Write a challenge's records. For ACME clients (DNS-01, RFC 8555 §8.4). Idempotent. Whole writes of
        the zone, by whomever, leave challenges as they are, and nobody's management of the zone stands
        against them. The edges answer with it once `sync` says `IN_SYNC`.

        Args:
            zone: The zone's name.
            name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
        """
        return (await self.send(calls.put_challenge(zone, name, body))).value

    async def delete_challenge(
        self, zone: types.HostName, name: str, *, value: str | None = None
    ) -> types.Changed:
        """Delete a challenge's records. What is not there is deleted all the same: clients clean up more
        than once.

        Args:
            zone: The zone's name.
            name: `_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.
            value: Only this one; left out: all.
        """
        return (await self.send(calls.delete_challenge(zone, name, value=value))).value

    def search_resources(
        self,
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
    ) -> AsyncIterator[types.InventoryItem]:
        """Search resources of all kinds. By kind, then by name. Those are found whose documents hold every
        word of `search`, in whatever field. Every item, page after page.

        Args:
            kind: Only of this kind.
            search: Words, in any order and case.
            managed_by: Only what this tool manages, such as `terraform/prod-network`.
        """
        return self.items(calls.search_resources(kind=kind, search=search, managed_by=managed_by, limit=1000))

    async def list_names(self, *, limit: int | None = None) -> types.Names:
        """What requests may name. Names alone, from memory: to choose from. Where regions are, for maps.

        Args:
            limit: Most items in the answer.
        """
        return (await self.send(calls.list_names(limit=limit))).value

    async def list_references(
        self,
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
    ) -> types.References:
        """What refers to a resource. Of the policy in force. Nothing refers to what is not there."""
        return (await self.send(calls.list_references(kind=kind, name=name))).value

    async def read_policy(self, body: types.ReadRequest) -> types.ReadView:
        """Read a draft written as YAML. What is wrong with it, line by line, as `gtm check` says it, and
        what it says as JSON. Changes nothing. A long text, or one with anchors, is read in a process with
        bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at
        work.
        """
        return (await self.send(calls.read_policy(body))).value

    async def list_managers(self) -> types.ManagerList:
        """List the tools that manage resources. Answered from memory, also while the database is down."""
        return (await self.send(calls.list_managers())).value

    async def reassign_managers(self, body: types.ReassignRequest) -> types.ReassignView:
        """Let another tool manage resources, or none. The resources stay as they are, and there is no
        revision. All or nothing: 409 if one of them is not managed by `manager`, 404 if that manages
        nothing.
        """
        return (await self.send(calls.reassign_managers(body))).value

    async def list_fence_approvals(self) -> types.ApprovalList:
        """List approvals, the latest first. Those that have ended included."""
        return (await self.send(calls.list_fence_approvals())).value

    async def approve_fence(self, body: types.ApprovalRequest) -> types.ApprovalView:
        """Approve of a change that opens a fence. It counts only if nobody has both in hand, what approves
        and what makes the change: their owners, and whoever made them.
        """
        return (await self.send(calls.approve_fence(body))).value

    async def simulate_policy(self, body: types.SimulateRequest) -> types.SimulationView:
        """Try a draft, or a scenario, with traffic. What the policy in force makes of it, and what the draft
        would (left out: the same policy) if a `scenario` came true: regions that fail or drain, other
        capacity, more demand, a day to come. Else health, latency and load are as they are now. Shares,
        latency, spillover, refusals, room, and what moves. Changes nothing. It is worked out in a process
        with bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at
        work.
        """
        return (await self.send(calls.simulate_policy(body))).value

    async def plan_policy(
        self,
        body: types.PlanRequest,
        *,
        on_managed: types.OnManaged | None = None,
        managed_reason: str | None = None,
        managed_by: str | None = None,
    ) -> types.PolicyChanged:
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
        return (
            await self.send(
                calls.plan_policy(
                    body, on_managed=on_managed, managed_reason=managed_reason, managed_by=managed_by
                )
            )
        ).value

    async def explain_route(self, body: types.ExplainRequest) -> types.ExplanationView:
        """Explain a decision, by the policy in force or by a draft. With health, plan and latency as they
        are now at control, and with what an edge would send: the DNS answers, or the redirect. Edges
        explain what they answer at their own `GET /v1/route?explain=1`. A draft is looked at in a process
        of its own, as by `policy:simulate`.
        """
        return (await self.send(calls.explain_route(body))).value

    async def get_demand(
        self,
        *,
        limit: int | None = None,
        at: datetime | str | None = None,
        region: types.Name | None = None,
        service: types.Name | None = None,
        tenant: types.Name | None = None,
        data_class: types.Name | None = None,
        priority: types.Priority | None = None,
        client: types.JurisdictionName | None = None,
    ) -> types.DemandView:
        """Demand now or then, by region, ranking class and demand cell. Now: smoothed over 3 s; an edge that
        stops reporting counts for 30 s more; from memory. Then (`at`): of the recorded minute in which
        that moment lies or, where that was not recorded, of the last one up to an hour before.

        Args:
            limit: Most rows in the answer.
            at: When; left out: now.
            region: Only this region; left out: all.
            service: Only this service.
            tenant: Only requests that state this one.
            data_class: Likewise.
            priority: Only requests of this one.
            client: Only clients in this country, or in the countries that this jurisdiction has at that
                time.
        """
        return (
            await self.send(
                calls.get_demand(
                    limit=limit,
                    at=at,
                    region=region,
                    service=service,
                    tenant=tenant,
                    data_class=data_class,
                    priority=priority,
                    client=client,
                )
            )
        ).value

    async def get_demand_timeline(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> types.TimelineView:
        """How many requests were recorded, step by step. In as many steps of 1, 5, 15 or 60 minutes, 6
        hours, a day or a week as 300 are enough for.

        Args:
            since: From then on; left out: 24 hours ago.
            until: Until before then; left out: now.
        """
        return (await self.send(calls.get_demand_timeline(since=since, until=until))).value

    async def get_recorded_demand(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> types.RecordedView:
        """Recorded demand by demand cell, with its peak and a timeline. Minutes that were not recorded count
        as no time, not as idle.

        Args:
            since: From then on; left out: 24 hours ago.
            until: Until before then; left out: now.
        """
        return (await self.send(calls.get_recorded_demand(since=since, until=until))).value

    async def list_dnssec(self) -> types.ZoneKeysList:
        """Keys of all signed zones, by zone. Every zone that has keys, also one that the policy no longer
        has signed, and why keys cannot be made now, if so.
        """
        return (await self.send(calls.list_dnssec())).value

    async def get_dnssec(self, zone: types.HostName) -> types.ZoneKeysSchema:
        """Keys of a zone. Their states and next steps, and the DS records that the parent should have.

        Args:
            zone: The zone's name.
        """
        return (await self.send(calls.get_dnssec(zone))).value

    async def roll_dnssec_key(self, zone: types.HostName, body: types.RollRequest) -> types.ZoneKeysSchema:
        """Replace a key. Begins the replacement, or makes one under way urgent; the steps follow by
        themselves, but for the DS record of a new key-signing key.

        Args:
            zone: The zone's name.
        """
        return (await self.send(calls.roll_dnssec_key(zone, body))).value

    async def confirm_ds(self, zone: types.HostName) -> types.ZoneKeysSchema:
        """Confirm that the parent has the DS record. Of the newest key-signing key. Where control has a
        resolver (`GTM_DNSSEC_RESOLVER`) it sees that itself.

        Args:
            zone: The zone's name.
        """
        return (await self.send(calls.confirm_ds(zone))).value

    async def withdraw_ds(self, zone: types.HostName, body: types.WithdrawRequest) -> types.ZoneKeysSchema:
        """Ask the parent to drop its DS records. Publishes the CDS and CDNSKEY records for that (RFC 8078),
        before DNSSEC is switched off; with `withdrawing` false, the usual ones again.

        Args:
            zone: The zone's name.
        """
        return (await self.send(calls.withdraw_ds(zone, body))).value

    async def create_token(self, body: types.TokenRequest) -> types.TokenCreated:
        """Make a token. The answer holds its text, which is shown this once and stored nowhere."""
        return (await self.send(calls.create_token(body))).value

    def list_tokens(self) -> AsyncIterator[types.TokenView]:
        """List tokens, by name. Revoked and expired ones included, the latest of a name first. Every item,
        page after page.
        """
        return self.items(calls.list_tokens(limit=1000))

    async def rotate_token(
        self, token: str, body: types.RotateRequest | None | None = None
    ) -> types.TokenCreated:
        """Replace a token's text. The new token has the name, role, expiry and owner of the old one, which
        works until the grace is over. The answer holds its text, which is shown this once and stored
        nowhere.

        Args:
            token: Its name.
        """
        return (await self.send(calls.rotate_token(token, body))).value

    async def revoke_token(self, token: str) -> types.TokenView:
        """Revoke a token. For good; by name, with those that it has replaced. It stops working here at once,
        and at edges as soon as the feed has told them. Its name is free again.

        Args:
            token: Its id or its name.
        """
        return (await self.send(calls.revoke_token(token))).value

    async def create_sign_in_link(self) -> types.LinkView:
        """Make a link that signs in at the dashboard. It works once, within five minutes, at the control
        that made it, for whoever holds the token.
        """
        return (await self.send(calls.create_sign_in_link())).value

    async def list_sessions(self) -> types.SessionList:
        """List who is signed in at the dashboard. An admin sees all sessions, others their own."""
        return (await self.send(calls.list_sessions())).value

    async def end_session(self, session: str) -> None:
        """Sign a browser out. An admin may end any session, others their own.

        Args:
            session: Its id.
        """
        await self.send(calls.end_session(session))

    async def end_sessions(self, name: str) -> types.Ended:
        """Sign somebody out everywhere. End all sessions of one name.

        Args:
            name: What they are called in the list of sessions.
        """
        return (await self.send(calls.end_sessions(name))).value

    def list_audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        forced: bool | None = None,
        oldest_first: bool | None = None,
    ) -> AsyncIterator[types.EntryView]:
        """Search the audit log, the newest first. Every change and every forced action. What is about
        tokens, sessions and sign-ins only admins see. Every item, page after page.

        Args:
            who: Part of who did it, in any case.
            action: An action (`region.drain`), or a family of them (`region`).
            target: Part of what it was done to, in any case.
            since: From then on.
            until: Until before then.
            forced: Only what overruled safety rules, or only what did not.
            oldest_first: The other way round.
        """
        return self.items(
            calls.list_audit(
                who=who,
                action=action,
                target=target,
                since=since,
                until=until,
                forced=forced,
                oldest_first=oldest_first,
                limit=1000,
            )
        )

    def export_audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        forced: bool | None = None,
        oldest_first: bool | None = None,
    ) -> AsyncIterator[Any]:
        """The same as lines of JSON, without pages. All that is found, as it is read.

        Args:
            who: Part of who did it, in any case.
            action: An action (`region.drain`), or a family of them (`region`).
            target: Part of what it was done to, in any case.
            since: From then on.
            until: Until before then.
            forced: Only what overruled safety rules, or only what did not.
            oldest_first: The other way round.
        """
        return self.lines(
            calls.export_audit(
                who=who,
                action=action,
                target=target,
                since=since,
                until=until,
                forced=forced,
                oldest_first=oldest_first,
            )
        )

    async def list_edges(self) -> types.EdgeList:
        """List the edges, by name. All that were ever heard of."""
        return (await self.send(calls.list_edges())).value

    async def get_edge(self, name: str) -> types.EdgeDetail:
        """An edge, with what its DNS does and the certificates that it meets. One of them.

        Args:
            name: The edge's name.
        """
        return (await self.send(calls.get_edge(name))).value

    async def forget_edge(self, name: str) -> None:
        """Forget an edge that is gone for good. It no longer counts as unreachable. Should it report again,
        it is known again. An edge that is live is not forgotten.

        Args:
            name: The edge's name.
        """
        await self.send(calls.forget_edge(name))

    async def list_balancers(self) -> types.BalancerList:
        """List the balancers heard of in the last hour, by region and name. What each said of itself in its
        last report. Answered from memory, also while the database is down.
        """
        return (await self.send(calls.list_balancers())).value

    async def handoff_keys(self) -> dict[str, Any]:
        """The keys by which signed handoffs are verified. For everybody: public keys alone, without the
        names of edges. Every edge publishes them too, at `/.well-known/gtm/jwks.json`.
        """
        return (await self.send(calls.handoff_keys())).value

    async def get_status(self) -> types.StatusView:
        """Revision in force, and which edges have it. Answered from memory, also while the database is down."""
        return (await self.send(calls.get_status())).value

    async def get_health(self, *, region: types.Name | None = None) -> types.HealthView:
        """Health of every region and endpoint, by vantage. As the edges vote; answered from memory, also
        while the database is down.

        Args:
            region: Only this region; left out: all.
        """
        return (await self.send(calls.get_health(region=region))).value

    def list_health_changes(
        self,
        *,
        region: types.Name | None = None,
        endpoint: str | None = None,
        vantage: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> AsyncIterator[types.ChangeView]:
        """Verdicts that changed, the newest first. Of each edge and of all together, with what the probe
        met. Kept for as long as control is told. Every item, page after page.

        Args:
            region: Only this region; left out: all.
            endpoint: Only the endpoint of this URL.
            vantage: Only this edge; `*`: all together.
            since: From then on.
            until: Until before then; left out: now.
        """
        return self.items(
            calls.list_health_changes(
                region=region, endpoint=endpoint, vantage=vantage, since=since, until=until, limit=1000
            )
        )

    def list_health_steps(
        self,
        *,
        region: types.Name,
        endpoint: str | None = None,
        vantage: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> AsyncIterator[types.SeriesView]:
        """How a region's probes ended, five minutes by five minutes. Of each endpoint as every edge sees it,
        over at most a day. Times are control's. Every item, page after page.

        Args:
            region: The region.
            endpoint: Only the endpoint of this URL.
            vantage: Only this edge; `*`: all together.
            since: From then on; left out: an hour before `until`.
            until: Until before then; left out: now.
        """
        return self.items(
            calls.list_health_steps(
                region=region, endpoint=endpoint, vantage=vantage, since=since, until=until, limit=1000
            )
        )

    async def report_load(self, body: dict[str, Any]) -> None:
        """Report the load of regions. One report, or up to 1000 as `reports`. What is malformed, or of
        another region than the token is bound to, is dropped and listed in a 422; all the rest counts.
        Fields of ORCA load reports (xDS) are accepted by their names in the .proto and in JSON.
        """
        await self.send(calls.report_load(body))

    async def get_load(self, *, region: types.Name | None = None) -> types.LoadView:
        """Load and usable capacity of every region, by service. And how the capacity comes about. Answered
        from memory, also while the database is down.

        Args:
            region: Only this region; left out: all.
        """
        return (await self.send(calls.get_load(region=region))).value

    async def get_latency(
        self,
        *,
        client: str | None = None,
        country: str | None = None,
        lat: float | None = None,
        lon: float | None = None,
    ) -> types.LatencyView:
        """Measured round trips, and estimates for a client. For the client at an address, in a country, or
        at coordinates: the estimated round trip to every region, what it rests on, and what was measured.
        Answered from memory, also while the database is down.

        Args:
            client: An IP address.
            country: ISO 3166-1 alpha-2; its middle stands for it.
            lat: Degrees; with `lon`.
            lon: Degrees; with `lat`.
        """
        return (await self.send(calls.get_latency(client=client, country=country, lat=lat, lon=lon))).value

    async def forget_latency(self, body: types.ForgetSchema) -> None:
        """Forget what a token taught of round trips. What its edges or balancers measured, and the locations
        that they dispute, leave the next table. A token that is revoked is forgotten by itself; this is
        for one that goes on, because it was wrong for a while.
        """
        await self.send(calls.forget_latency(body))

    async def get_plan(self) -> types.PlanView:
        """The last plan, and what it rests on. Made anew every second; answered from memory, also while the
        database is down.
        """
        return (await self.send(calls.get_plan())).value

    async def get_plan_history(
        self,
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
    ) -> types.PlanHistoryView:
        """What the planner decided, by region and time. Recorded minute by minute, as long as demand is
        (`GTM_DEMAND_DAYS`), and joined to steps. Regions that were deleted since are among them.

        Args:
            since: From then on; left out: 24 hours ago.
            until: Until before then; left out: now.
            region: Only this region; left out: all.
            column: Only this of each step; left out: all, which is much of many regions.
        """
        return (
            await self.send(calls.get_plan_history(since=since, until=until, region=region, column=column))
        ).value

    async def get_top(self) -> types.TopView:
        """Everything at a glance, for one poll a second. Regions, spillover, refusals, the plan; answered
        from memory, also while the database is down.
        """
        return (await self.send(calls.get_top())).value

    async def healthz(self) -> types.Liveness:
        """Whether the process runs. Always 200: no other part is asked, the database least of all."""
        return (await self.send(calls.healthz())).value

    async def readyz(self) -> types.Readiness:
        """Whether answers are correct. The database would take a change, the policy in it compiled and is
        being published, and this control is the active one.
        """
        return (await self.send(calls.readyz())).value

    async def metrics(self) -> str:
        """Prometheus metrics. Outside the networks of `GTM_METRICS_ALLOW` (by default this machine), for
        tokens of role `viewer`.
        """
        return (await self.send(calls.metrics())).value
