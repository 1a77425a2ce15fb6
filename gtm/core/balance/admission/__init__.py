"""Which request begins now, which waits, which is refused: one `Admission` a process of the regional balancer.

    offer ─▶ deadline ─▶ backends ─▶ model's limit ─▶ tenant's limits ─▶ a slot? ─▶ ADMITTED ─▶ release
               504          503           503               429             │no          ▲
                                                                          queue ─────────┘ by tier, then by fair share
                                                                            │
                                                                   withdrawn, 504, or 503 (gave way)

Laws (docs/admission.md has the rules in full):
  1. What ran or waits is counted once and ends once: every ticket leaves by `release`, `withdraw`, its deadline or being pushed out,
     and a second end changes nothing.
  2. What a tier reserves, no lower tier ever takes. A higher one may borrow it while it is idle, and gives it back with the next
     slots that end.
  3. Nothing waits that could begin, and nothing begins after its deadline.
  4. Inside a tier, tenants that wait for the same servers get slots by weight, counted in cost of work; none is starved, neither of slots nor of
     places in the queue.
  5. A refusal takes nothing: no rate, no tokens, no place.
  6. Work that has begun is never taken back.
  7. Requests that may go to other servers wait apart (`rooms`): a queue for some servers keeps nobody from others.
  8. All state is bounded: the queue by length and bytes, tenants by number.

Use, by one thread. Whatever is called, `due` then tells which of those that wait were decided by it, or by time; a timer calls it
at `next_deadline`, at the latest. Whoever holds a ticket ends it with `release` in its `finally`, whatever happened: once counts.

>>> from gtm.core.balance.admission.admission import Admission
>>> from gtm.core.balance.admission.values import Arrival
>>> admission = Admission(limit=1)
>>> first, second = (admission.offer(Arrival(tenant=name), now=10.0) for name in ("acme", "other"))
>>> first.state.value, second.state.value, admission.next_deadline()
('admitted', 'waiting', 15.0)
>>> admission.release(first, now=11.0)
>>> admission.release(first, now=11.0)
>>> [(ticket is second, ticket.state.value) for ticket in admission.due(now=11.0)]
[(True, 'admitted')]
>>> admission.offer(Arrival(deadline=11.0), now=11.0)
AdmissionRefusal(status=504, code=<RefusalCode.DEADLINE: 'deadline'>, detail="the request's deadline had passed when it came: allow it more time", retry_after=None, fallback=None)
"""
