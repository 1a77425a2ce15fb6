"""What a request states of itself, where its host name states something too.

Law: nothing is loosened by putting two statements together. What one leaves open the other may say; where they differ there
is no reading that is the strictest, and the request is refused.
"""

from __future__ import annotations

from gtm.core.model.services import HostName


class ContradictionError(ValueError):
    """A request states another tenant or data class than the host name that it came by."""

    def __init__(self, kind: str, host: HostName, named: str, said: str) -> None:
        super().__init__(
            f"the request states the {kind} `{said}`, but the host name `{host.name}` is for the {kind} `{named}`: use a host "
            f"name of that {kind}, or leave the statement out"
        )


def agreed(host: HostName, tenant: str | None, data_class: str | None) -> tuple[str | None, str | None]:
    """The tenant and data class of a request that came by a host name.

    Args:
        host: the name, with what it states.
        tenant: that the request states; None: none.
        data_class: likewise.

    Raises:
        ContradictionError: it states another than the name.
    """
    return (
        _one("tenant", host, host.tenant, tenant),
        _one("data class", host, host.data_class, data_class),
    )


def _one(kind: str, host: HostName, named: str | None, said: str | None) -> str | None:
    if named is not None and said is not None and named != said:
        raise ContradictionError(kind, host, named, said)
    return said if named is None else named
