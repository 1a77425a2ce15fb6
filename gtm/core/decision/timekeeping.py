"""What an edge knows of the time: never one reading, always a window.

Laws:
  1. A wrong clock adds restrictions and lifts none. A rule that was in force at any reading stays in force until its end
     has passed by every clock that is heard: the edge's own, and control's.
  2. The latest that it may be only moves forward. It outlives the process (`Kept`), and goes on with the boot clock when
     the machine's own clock steps back.
  3. Processes with equal `ClockTimes` have equal windows at any moment: the boot clock is the machine's, nobody sets it, and
     offsets to it are all that is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from gtm.core.decision.view import Window

LEAD = 1.0
"""Seconds before its moment from which a restriction binds at edges, so that no answer given before is under way when it
begins, however late a process is woken. It is in windows only: no reading has it, so it does not add up."""
KEEP_EVERY = 10.0
"""Seconds between times that are kept on disk while nothing steps."""
UNKEPT = KEEP_EVERY + 5.0
"""Seconds that what is on disk may be behind what was answered from: rules that begin within them count as begun."""
STEP = 0.25
"""Seconds by which a clock that moved is not late but has stepped."""
END_OF_TIME = 253_402_300_800.0
"""The end of the year 9999 in POSIX seconds: readings outside of that are damage."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Times as they are kept on disk.

    `boot` is the boot clock's reading then, of the boot `boot_id` (empty: unknown). `latest`, `heard` and `control` are
    POSIX seconds then: the latest it may have been, when control was last heard, and what its clock showed.
    """

    boot_id: str
    boot: float
    latest: float
    heard: float | None = None
    control: float | None = None


@dataclass(frozen=True, slots=True)
class ClockTimes:
    """What is known of the time.

    `latest`, `local` and `control` are offsets, POSIX seconds less seconds of the boot clock: of the highest reading of
    any clock ever, of the machine's own clock at its last reading, and of control's as its last heartbeat told (None: it
    never did). `heard` is when control was last heard, in POSIX seconds by `latest`; None: never. `floor` is a moment
    until which restrictions count as begun, because what was on disk may be behind. `unsaved`: since when, likewise, the disk has
    refused the policy that is followed; None: it is there.
    """

    latest: float
    local: float
    control: float | None = None
    heard: float | None = None
    floor: float | None = None
    unsaved: float | None = None

    @classmethod
    def of(cls, boot: float, clock: float) -> ClockTimes:
        """The times of a process that knows nothing but its clocks' readings."""
        return cls(clock - boot, clock - boot)

    def read(self, boot: float, clock: float) -> ClockTimes:
        """The same once the machine's own clock was read."""
        local = clock - boot
        return replace(self, local=local, latest=max(self.latest, local))

    def heard_at(self, boot: float, control: float | None = None) -> ClockTimes:
        """The same once control was heard, with its clock's reading if that came along."""
        found = self
        if control is not None and 0 <= control <= END_OF_TIME:
            found = replace(found.no_earlier(boot, control), control=control - boot)
        return replace(found, heard=boot + found.latest)

    def saving(self, boot: float, *, refused: bool) -> ClockTimes:
        """The same once the disk has refused the policy that is followed, or taken it."""
        if not refused:
            return replace(self, unsaved=None)
        return self if self.unsaved is not None else replace(self, unsaved=boot + self.latest)

    def no_earlier(self, boot: float, moment: float) -> ClockTimes:
        """The same once it is known that a moment has passed."""
        if not 0 <= moment <= END_OF_TIME or moment - boot <= self.latest:
            return self
        return replace(self, latest=moment - boot)

    def following(self, told: ClockTimes) -> ClockTimes:
        """Those told by the process that keeps the time; of the two `latest`, the later."""
        floors = [floor for floor in (self.floor, told.floor) if floor is not None]
        return replace(told, latest=max(self.latest, told.latest), floor=max(floors, default=None))

    def now(self, boot: float) -> float:
        """The earliest that it may be, as the window at a reading of the boot clock has it, in a third of the time."""
        local = boot + self.local
        return local if self.control is None else min(local, boot + self.control)

    def window(self, boot: float) -> Window:
        """The window at a reading of the boot clock."""
        latest = boot + self.latest
        local = boot + self.local
        silence = inf if self.heard is None else latest + LEAD - self.heard
        return Window(  # by place: by name takes twice as long
            self.now(boot),
            latest + LEAD if self.floor is None else max(latest + LEAD, self.floor),
            silence if self.unsaved is None else max(silence, latest + LEAD - self.unsaved),
            local,
            silence,
        )

    @property
    def spread(self) -> float:
        """Seconds by which the highest reading ever is beyond the lowest of the clocks that are heard now."""
        return self.latest - (self.local if self.control is None else min(self.local, self.control))

    def stepped(self, before: ClockTimes) -> bool:
        """Whether a clock has stepped since."""
        if (self.control is None) is not (before.control is None):
            return True
        moved = [self.latest - before.latest, self.local - before.local]
        if self.control is not None and before.control is not None:
            moved.append(self.control - before.control)
        return any(abs(by) >= STEP for by in moved)

    def kept(self, boot: float, boot_id: str) -> Kept:
        """What to keep of it on disk. The policy that lies there was heard of until another one was refused."""
        control = None if self.control is None else boot + self.control
        heard = self.heard if self.heard is None or self.unsaved is None else min(self.heard, self.unsaved)
        return Kept(boot_id, boot, boot + self.latest, heard, control)

    def resumed(self, kept: Kept, boot: float, boot_id: str) -> ClockTimes:
        """The same with what was kept on disk.

        In the same boot the time between counts by the boot clock, whatever the machine's own clock shows now. After
        another, all that is known is that what was kept is past; what control's clock shows has to be heard anew.
        """
        same = bool(boot_id) and kept.boot_id == boot_id and kept.boot <= boot
        heard = kept.heard
        since = kept.boot if same else boot
        # Less than a step is not written at once, nor are the seconds since the last time it was.
        floor = kept.latest - since + boot + LEAD + STEP if same else kept.latest + UNKEPT
        latest = max(self.latest, kept.latest - since)
        if heard is not None and not same:
            # Less the seconds that may have passed and were not written down; no clock shows a time before 1970.
            heard = max(0.0, heard - max(0.0, floor - (boot + latest)))
        return replace(
            self,
            latest=latest,
            control=kept.control - since if same and kept.control is not None else self.control,
            heard=max((at for at in (self.heard, heard) if at is not None), default=None),
            floor=floor if self.floor is None else max(floor, self.floor),
        )
