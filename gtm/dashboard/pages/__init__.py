"""The pages, each a module with its routes; its template has the same name."""

from gtm.dashboard.pages import (
    access,
    ask,
    audit,
    edges,
    latency,
    plan,
    plan_history,
    policy,
    region_changes,
    regions,
    residency,
    simulate,
    world,
)

PAGES = (
    world,
    ask,
    regions,
    region_changes,
    policy,
    simulate,
    residency,
    plan,
    plan_history,
    access,
    audit,
    edges,
    latency,
)
"""All of them, in the order of the menu."""
