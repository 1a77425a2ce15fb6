"""`gtm fence`: approvals, and which would count for a change of whoever asks."""

from __future__ import annotations

from gtm.cli.common.exits import Exit
from gtm.core.model.access import Role
from tests.api.conftest import TOKENS
from tests.cli.conftest import Gtm


def test_who_approved_and_for_whom_it_counts(run: Gtm) -> None:
    """One's own does not count for oneself, and the list says why; somebody else's does."""
    assert "nobody has approved of anything" in run.ok("fence", "approvals").out
    approve = ("fence", "approve", "AB" * 32, "--reason", "case 4711", "--expires", "2h")
    assert "approved by admin-one until " in run.ok(*approve).out
    assert run(*approve, GTM_TOKEN=TOKENS[Role.OPERATOR]).code == Exit.NOT_ALLOWED
    [mine] = run.ok("fence", "approvals", "--json").json
    assert (mine["sha256"], mine["owner"]) == ("ab" * 32, "admin-one")
    assert mine["objection"] == "nobody approves of a change of their own, and both are `admin-one`'s"
    [theirs] = run.ok("fence", "approvals", "--json", GTM_TOKEN=TOKENS[Role.FENCE_ADMIN]).json
    assert theirs["objection"] is None
    assert "change of their own" in run.ok("fence", "approvals").out
    listed = run.ok("fence", "approvals", GTM_TOKEN=TOKENS[Role.FENCE_ADMIN]).out
    assert "stands" in listed
    assert "change of their own" not in listed
