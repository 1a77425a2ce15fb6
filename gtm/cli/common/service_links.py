"""Variables that Kubernetes puts into each pod for each Service of its name space: one called `gtm-control` sets GTM_CONTROL_PORT.

Source: Kubernetes, "Service: environment variables" (Docker links: `<NAME>_PORT=tcp://<address>:<port>`).
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping

_NAME = re.compile(r"(GTM_[A-Z0-9_]+)_PORT")
_LINK = re.compile(r"(?:tcp|udp|sctp)://\[?[0-9A-Fa-f.:]+\]?:[0-9]+")


def ignore(environment: MutableMapping[str, str]) -> list[str]:
    """Take them out of an environment where they stand in the place of gtm's own, and say so, a line for each."""
    said = []
    for name, value in sorted(environment.items()):
        found = _NAME.fullmatch(name)
        if found and _LINK.fullmatch(value):
            del environment[name]
            service = found[1].lower().replace("_", "-")
            said.append(
                f"warning: {name}={value} is ignored: Kubernetes sets it for the Service `{service}`; "
                "`enableServiceLinks: false` in the pod's spec keeps it away"
            )
    return said
