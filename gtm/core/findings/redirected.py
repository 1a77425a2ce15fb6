"""Which services lead their clients by redirects, on which HTTP clients leave their keys out.

A redirect to another host is another party to the client: `fetch` (Fetch standard, "HTTP-redirect fetch", step 13), `curl`, and the HTTP
libraries below the SDKs of model vendors send it no `Authorization`. DNS and look-ups keep keys: there the client asks the region itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.services import Push

_LOST = 'clients leave `Authorization` out where a redirect leads to another host (docs/api.md, "Redirects lose keys")'


def redirect_findings(policy: Policy) -> Iterator[Problem]:
    """Services whose clients may be redirected: code `redirect_loses_keys`. Those without a host name are told of together."""
    nameless = [f"`{service.name}`" for service in policy.services if not service.hostnames]
    if nameless:
        has = "has" if len(nameless) == 1 else "have"
        text = (
            f"{some(nameless, 'services')} {has} no host name, so that redirects and look-ups alone reach the servers, and {_LOST}: where "
            "servers want keys, give each service a host name, which DNS answers, or let clients look up"
        )
        yield Problem("services", "redirect_loses_keys", text)
    for service in policy.services:
        if service.push is Push.REDIRECT:
            text = f"{_LOST}: where servers want keys, use `push: carry`"
            yield Problem(f"services.{service.name}.push", "redirect_loses_keys", text)
