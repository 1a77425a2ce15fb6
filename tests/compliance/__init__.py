"""Clauses of RFCs that no other test holds, and the checks of public compliance testers."""
