"""An edge's times on disk: read before its first View, written every few seconds and whenever a clock steps."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from gtm.core.decision.timekeeping import KEEP_EVERY, STEP, ClockTimes
from gtm.feed import clockfile
from gtm.feed.current import CurrentView
from gtm.feed.wire import FeedError

logger = logging.getLogger(__name__)

SPREAD = 60.0
"""Seconds between clocks from which on the log and `/readyz` speak of it: more than clocks that are set ever differ by."""


class ClockKeeper:
    """Keeps what a current View knows of the time in a data directory, from any thread: an older time never follows a newer one.

    Args:
        data_dir: the edge's.
        current: whose times these are.
        boot: what tells this start of the machine from others.
    """

    def __init__(self, data_dir: Path, current: CurrentView, boot: str) -> None:
        self._path = data_dir / clockfile.FILE
        self._current = current
        self._boot_id = boot
        self._keeping = threading.Lock()
        self._kept: ClockTimes | None = None
        self._kept_at = 0.0
        self._failing = False
        self._apart = False

    def load(self) -> None:
        """Take in what was kept. Without it the clocks here, control's and the policy's own date say what time it is."""
        try:
            kept = clockfile.load(self._path)
        except FileNotFoundError:
            logger.info("no times kept on disk yet")
        except (FeedError, OSError) as error:
            logger.error("cannot use the times kept on disk, going by the clocks alone: %s", error)
        else:
            self._current.resume(kept, self._boot_id)
        self._watch()

    def keep(self) -> None:
        """Write the times down, if some time has passed since or a clock has stepped."""
        with self._keeping:
            times, boot = self._current.times, self._current.boot()
            self._watch()
            last = self._kept
            raised = last is None or times.latest - last.latest >= STEP
            if not raised and boot - self._kept_at < KEEP_EVERY:
                return
            self._kept, self._kept_at = times, boot  # not again at once where the disk refuses
            try:
                clockfile.save(self._path, times.kept(boot, self._boot_id))
            except OSError as error:
                if not self._failing:
                    logger.error("cannot keep the time on disk, still trying: %s", error)
                self._failing = True
            else:
                if self._failing:
                    logger.info("kept the time on disk after all")
                self._failing = False

    def _watch(self) -> None:
        """Say when clocks are far apart, and when they are not any more."""
        spread = self._current.times.spread
        apart = spread >= SPREAD
        if apart and not self._apart:
            logger.warning(
                "some clock showed a time %.0f s beyond what is shown now, here or by control: until then rules that begin "
                "are in force early; if that reading was wrong, see `A clock that was far ahead` in docs/operations.md",
                spread,
            )
        elif self._apart and not apart:
            logger.info("the clocks agree again")
        self._apart = apart
