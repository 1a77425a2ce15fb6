"""Handoffs on the wire: signed by edges and balancers, verified by balancers, keys as JWKS (docs/handoff.md).

Laws:
  1. One algorithm, EdDSA with Ed25519, whatever a token's header says: there is nothing to choose, so nothing to confuse.
  2. What arrives is bounded before it is read, and read as a whole or not at all.
  3. A key speaks for the issuer that control has bound it to, and for nobody else.
  4. Private keys are in an edge's data directory and its processes' memory; no log, report or feed has one.
"""
