"""Inside a region: which of its servers takes a request, when, and what happens to one that fits nowhere.

Values in, decisions out: nothing here knows who carries the bytes. gtm's own data plane (`gtm.balancer`) asks in process; another
proxy may ask over a wire.

    request ─▶ admission (tier, tenant, limits, queue) ─▶ filters ─▶ score ─▶ pick ─▶ counts
                       │ no room here
                       └─▶ spill: a peer with room, inside the fence and the quota, one hop

Laws:
  1. What a balancer has in flight itself is the truth; what it scrapes from servers only corrects it, and what is missing or stale
     is unknown, never idle.
  2. Counts neither leak nor go negative: whatever began ends exactly once, however it ends.
  3. Filters say who may, scores say how good, picks say who: one small pure function each, and measuring apart from choosing.
  4. No fallback crosses a fence. Panic brings back servers of this region, never a region.
"""
