"""Pure decisions: values in, values out.

Laws of this package (checked by import-linter):
  1. No I/O, no clock, no randomness, no logging, no framework. They arrive as arguments.
  2. Values are immutable. What changes is replaced whole.
  3. The fence is absolute: `gtm.core.decision.decide.decide` cannot name a region outside it.
"""
