"""Which of a region's backends are usable, and how much of its weight each gets.

    checks ────────────▶ verdict (flapping damped) ──▶ healthy ─┐
    live requests ─────▶ breaker, outliers ──────────▶ ejected ─┤
    both ──────────────▶ slow start ─────────────────▶ warmth ──┼─▶ Condition, by backend
    metrics, headers ──▶ loads (or stale: unknown) ──▶ scraped ─┤
    people ────────────▶ drain ──────────────────────▶ draining ┘

Laws (docs/backend-health.md has the rules in full):
  1. Unknown is never healthy, and stale is never idle.
  2. Live requests eject at most a part of the backends, and never all of them.
  3. Flapping is bounded: in any `forget` seconds a backend falls by its checks, and is ejected, so many times as the settings say.
  4. A request says something of the backend as it was when the request began: not of the one that has been ejected since.
  5. What a request can have caused is held against a backend only as far as its peers do not fail likewise.
  6. Draining ends nothing.
"""
