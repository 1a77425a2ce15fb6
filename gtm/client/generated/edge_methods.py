"""Each call of the edge API as a method, for threads and for asyncio. Written by `make client`."""

from __future__ import annotations

from gtm.client.generated import edge_calls as calls
from gtm.client.methods import items, lines, value


class EdgeMethods:
    """What can be asked, one method each."""

    route = value(calls.route)
    route_batch = value(calls.route_batch)
    healthz = value(calls.healthz)
    readyz = value(calls.readyz)
    beacon_targets = value(calls.beacon_targets)
    send_beacons = value(calls.send_beacons)
    send_latency_samples = value(calls.send_latency_samples)
