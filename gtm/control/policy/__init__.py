"""Changing the policy: edits, drafts, simulations, approvals, revisions."""
