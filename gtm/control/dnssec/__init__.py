"""DNSSEC keys of the policy's signed zones: made, kept sealed, rolled, and signed with."""
