"""Services whose clients lose their keys on redirects."""

from __future__ import annotations

from dataclasses import replace

from gtm.core.findings.report import redirect_findings
from gtm.core.model.cors import Cors
from gtm.core.model.services import Push
from tests import worlds

REGION = worlds.region("de")
CHAT = worlds.service("chat", "de")
NAMED = replace(CHAT, hostnames=("chat.example.com",))


def test_services_without_a_host_name_are_told_of_together() -> None:
    """One warning names them all, and what to do; a service with a host name is not in it."""
    (found,) = redirect_findings(
        worlds.policy(REGION, CHAT, replace(CHAT, name="web"), replace(NAMED, name="dns"))
    )
    assert (found.path, found.code) == ("services", "redirect_loses_keys")
    assert "`chat`, `web` have no host name" in found.message
    assert "give each service a host name" in found.message


def test_pushes_by_redirect() -> None:
    """Each service that pushes by redirects is named; who is led by DNS and has its pushes carried is not."""
    redirected = replace(NAMED, name="far", push=Push.REDIRECT)
    (found,) = redirect_findings(worlds.policy(REGION, NAMED, redirected))
    assert (found.path, found.code) == ("services.far.push", "redirect_loses_keys")
    assert "`push: carry`" in found.message


def test_lists_of_origins_behind_redirects() -> None:
    """A browser asks as `null` behind a redirect: a list that does not hold any origin is of no use there."""
    listed, open_to_all = Cors(("https://app.example.com",)), Cors(("*",))
    redirected = replace(NAMED, name="far", push=Push.REDIRECT)
    for service, cors, paths in (
        (CHAT, listed, ["services.chat.cors"]),
        (CHAT, open_to_all, []),
        (NAMED, listed, []),
        (redirected, listed, ["services.far.cors"]),
    ):
        found = redirect_findings(worlds.policy(REGION, replace(service, cors=cors)))
        said = [one for one in found if one.code == "redirect_loses_origin"]
        assert [one.path for one in said] == paths
        assert all("`null`" in one.message and "host name" in one.message for one in said)
