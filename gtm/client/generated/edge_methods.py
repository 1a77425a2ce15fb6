"""Each call of the edge API as a method, for threads and for asyncio. Written by `make client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from gtm.client.generated import edge_calls as calls
from gtm.client.sessions import AsyncSession, Session

if TYPE_CHECKING:
    from gtm.client.generated import edge_types as types


class EdgeMethods(Session):
    """What can be asked, one method each."""

    def route(
        self,
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
    ) -> types.Route:
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
        return self.send(
            calls.route(
                service=service,
                client_ip=client_ip,
                tenant=tenant,
                data_class=data_class,
                host=host,
                model=model,
                affinity=affinity,
                priority=priority,
                explain=explain,
            )
        ).value

    def route_batch(self, body: types.Batch) -> types.BatchAnswer:
        """Which regions serve many requests. All answered from the View of their moment; `results` are in
        the order of `requests`, each what the look-up would have got by itself.
        """
        return self.send(calls.route_batch(body)).value

    def healthz(self) -> types.Liveness:
        """Whether the process lives."""
        return self.send(calls.healthz()).value

    def readyz(self) -> types.Readiness:
        """Whether answers are correct."""
        return self.send(calls.readyz()).value

    def beacon_targets(self, *, service: str) -> types.Targets:
        """Regions that the caller may measure. At most 5 to which it may be sent now, shuffled. For pages of
        any origin.

        Args:
            service: Name of the service.
        """
        return self.send(calls.beacon_targets(service=service)).value

    def send_beacons(self, body: types.Beacons) -> types.Taken:
        """Round trips that a browser measured. The client is the caller. At most 64 in 16 KiB."""
        return self.send(calls.send_beacons(body)).value

    def send_latency_samples(self, body: types.Samples) -> types.Taken:
        """Round trips that a balancer measured. With a token of role `balancer` or `reporter`. At most 5,000
        in 1 MiB.
        """
        return self.send(calls.send_latency_samples(body)).value


class AsyncEdgeMethods(AsyncSession):
    """What can be asked, one method each."""

    async def route(
        self,
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
    ) -> types.Route:
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
        return (
            await self.send(
                calls.route(
                    service=service,
                    client_ip=client_ip,
                    tenant=tenant,
                    data_class=data_class,
                    host=host,
                    model=model,
                    affinity=affinity,
                    priority=priority,
                    explain=explain,
                )
            )
        ).value

    async def route_batch(self, body: types.Batch) -> types.BatchAnswer:
        """Which regions serve many requests. All answered from the View of their moment; `results` are in
        the order of `requests`, each what the look-up would have got by itself.
        """
        return (await self.send(calls.route_batch(body))).value

    async def healthz(self) -> types.Liveness:
        """Whether the process lives."""
        return (await self.send(calls.healthz())).value

    async def readyz(self) -> types.Readiness:
        """Whether answers are correct."""
        return (await self.send(calls.readyz())).value

    async def beacon_targets(self, *, service: str) -> types.Targets:
        """Regions that the caller may measure. At most 5 to which it may be sent now, shuffled. For pages of
        any origin.

        Args:
            service: Name of the service.
        """
        return (await self.send(calls.beacon_targets(service=service))).value

    async def send_beacons(self, body: types.Beacons) -> types.Taken:
        """Round trips that a browser measured. The client is the caller. At most 64 in 16 KiB."""
        return (await self.send(calls.send_beacons(body))).value

    async def send_latency_samples(self, body: types.Samples) -> types.Taken:
        """Round trips that a balancer measured. With a token of role `balancer` or `reporter`. At most 5,000
        in 1 MiB.
        """
        return (await self.send(calls.send_latency_samples(body))).value
