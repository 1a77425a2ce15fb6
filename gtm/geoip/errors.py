"""What goes wrong with the files behind locations."""

from __future__ import annotations


class GeoIPError(Exception):
    """A GeoIP database or a file of overrides that cannot be used. The message says which, why and what to do."""
