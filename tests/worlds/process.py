"""What a control process of a test was told: to write no history down."""

from __future__ import annotations

from pathlib import Path

from gtm.settings import ControlSettings

SETTINGS = ControlSettings(data_dir=Path("/nonexistent"), demand_days=0, probe_days=0)
