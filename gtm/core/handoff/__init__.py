"""Signed handoffs: what an edge says of a request that it sends to a region, and what the region's balancer makes of it.

    edge: Routing, Option ─▶ claims.handed ─▶ (signed, `gtm.handoff`) ─▶ (verified) ─▶ judge.judge: serve · 421 · 451 · …
    edge: keys.Ring ─▶ its public keys ─▶ control ─▶ keys.PublicKeys ─▶ every follower of the feed

docs/handoff.md is the specification. Laws:
  1. A handoff narrows where, never widens it: the fence is the intersection of what it says and of what the balancer sees.
  2. One that cannot be believed counts as none, and the answer says why. Whoever holds a bad one could leave it out.
  3. There is one way to decide (`gtm.core.decision`): this room puts its rankings together, and has no fence of its own.
  4. A handoff ends before the law changes that it was given under.
"""
