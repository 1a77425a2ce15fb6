"""Health checks: what one check says (`checks`), and which checks are made when (`schedule`)."""

from gtm.prober.schedule import Prober

__all__ = ["Prober"]
