"""Use cases of the control tier: one short module per concern. No HTTP here, and no queries."""
