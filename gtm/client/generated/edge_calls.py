"""Each call of the edge API as a value, to be sent by a session. Written by `make client`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from gtm.client.calls import Call, Content, PagedCall, segment

if TYPE_CHECKING:
    from gtm.client.generated import edge_types as types


def route(
    *,
    service: str | None = None,
    client_ip: str | None = None,
    tenant: str | None = None,
    data_class: str | None = None,
    host: str | None = None,
    model: str | None = None,
    affinity: str | None = None,
    priority: Literal["real_time", "near_real_time", "batch"] | None = None,
    explain: Literal["0", "1", "false", "true"] | None = None,
) -> Call[types.Route]:
    """Which region serves one request. A tenant or data class that is not stated counts as one that
    every rule matches. What is unknown, repeated, empty or longer than 256 characters is an error. A
    refusal (421, 429, 451; 503 but for `not_ready`) is a problem document that holds the decision.

    Args:
        service: Name of the service; required unless `host` is given.
        client_ip: IPv4 or IPv6 address of the client. Left out: whoever asks. Others than yourself
            take a token.
        tenant: A tenant of the policy.
        data_class: A data class of the policy.
        host: A host name of the service, in place of `service`: with the tenant and data class that
            it states.
        model: Only regions that serve this model are candidates.
        affinity: Any text: keeps the client on its region, for services with `affinity: key`.
        priority: How urgent it is; the service's own if left out, and where a higher one is stated.
            The lowest is shed first.
        explain: `1`: the whole decision.
    """
    return Call(
        "GET",
        "/v1/route",
        parameters={
            "service": service,
            "client_ip": client_ip,
            "tenant": tenant,
            "data_class": data_class,
            "host": host,
            "model": model,
            "affinity": affinity,
            "priority": priority,
            "explain": explain,
        },
    )


def route_batch(body: types.Batch) -> Call[types.BatchAnswer]:
    """Which regions serve many requests. All answered from the View of their moment; `results` are in
    the order of `requests`, each what the look-up would have got by itself.
    """
    return Call("POST", "/v1/route:batch", body=body)


def healthz() -> Call[types.Liveness]:
    """Whether the process lives."""
    return Call("GET", "/healthz")


def readyz() -> Call[types.Readiness]:
    """Whether answers are correct."""
    return Call("GET", "/readyz")


def beacon_targets(*, service: str) -> Call[types.Targets]:
    """Regions that the caller may measure. At most 5 to which it may be sent now, shuffled. For pages of
    any origin.

    Args:
        service: Name of the service.
    """
    return Call("GET", "/v1/beacon-targets", parameters={"service": service})


def send_beacons(body: types.Beacons) -> Call[types.Taken]:
    """Round trips that a browser measured. The client is the caller. At most 64 in 16 KiB."""
    return Call("POST", "/v1/beacons", body=body)


def send_latency_samples(body: types.Samples) -> Call[types.Taken]:
    """Round trips that a balancer measured. With a token of role `balancer` or `reporter`. At most 5,000
    in 1 MiB.
    """
    return Call("POST", "/v1/latency-samples", body=body)
