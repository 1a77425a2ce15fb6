"""The pages, each a module with its routes; its template has the same name."""

from gtm.dashboard.pages import (
    access,
    ask,
    audit,
    edges,
    latency,
    plan,
    plan_history,
    region_changes,
    regions,
    residency,
    simulate,
    world,
)
from gtm.dashboard.pages.policy import resources as policy

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
