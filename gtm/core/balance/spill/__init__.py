"""Spill-back: what does not fit where the plan sent it goes, request by request, to another region that says it has room.

docs/spill-back.md is the page of promises.

    balancers ──▶ Room (free slots, 2 to 10 Hz) ──▶ feed ──▶ edges: `correct` the plan's choice, over HTTP (`corrector`)
                                                        └──▶ peers: `push` what has no room, one hop

Theory. Figures of free slots are old when they are used. If everybody sends to whoever had room 0.5 s ago, everybody goes to the
same place at once: herding (Mitzenmacher, "How useful is old information?", 2000). Three things prevent it here:

  1. *Allotments.* Of the slots that a region said were open, each of n senders may use its n-th part by one report, and no more
     until it hears another. The parts are rounded to whole requests by a number drawn by sender and report, so that they sum to
     what is open in the mean, even where there are fewer slots than senders (`senders.allotment`).
  2. What a sender has sent and the report cannot yet show is subtracted from its part (`senders.Sent`).
  3. A push goes to the less loaded of two peers that are drawn from those with room (power of two choices: Mitzenmacher 2001),
     and travels one hop: no request can circle.

Example. 8 edges hear that a region has 4 open slots. Each has a part of half a slot: on average four of the eight may send
one request there, the others none, and which ones it is changes with each report.

Laws:
  1. Only ways and peers that the caller gave are ever chosen, and these are made from the fence (`ways.ways` checks it again).
  2. What spills takes a token of each quota that it counts against and has not paid, or does not spill.
  3. Unknown is never room. A region of which nothing is known gains nothing, and loses nothing by corrections.
  4. One hop: a request that came by a push stays.
  5. Nothing is pushed that would not start sooner: the wait expected here must exceed the extra round trip and the wait there.
  6. Every decision says why.
"""
