"""Who is signed in, as docs/dashboard.md and docs/operations.md say it, and nothing else: written without a look at the code."""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR = 3600.0
LASTS = 12 * HOUR
LINK_LASTS = 300.0
MOST = 20


@dataclass
class Text:
    """One text of a token: it works until a moment; None: for good."""

    name: str
    ends: float | None = None


@dataclass
class Browser:
    """A browser that signed in: as whom, by which text (None: by no token), when, and when it was used last."""

    name: str
    text: Text | None
    began: float
    ended: bool = False
    order: int = 0


@dataclass
class Link:
    """A link: as whom it signs in, by which text, and until when."""

    name: str
    text: Text | None
    ends: float
    used: bool = False


@dataclass
class Model:
    """The world at a moment of the clock on the wall."""

    now: float = 0.0
    passed: float = 0.0
    """Seconds that went by, whatever the clock shows: links go by it."""
    browsers: list[Browser] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def works(self, text: Text | None) -> bool:
        """Whether a text counts; where there is none, nothing stands against it."""
        return text is None or text.ends is None or self.now < text.ends

    def signed_in(self, one: Browser) -> bool:
        """Whether a browser's session goes on."""
        began = one.began <= self.now + 300  # a clock that was ahead makes no session longer
        return not one.ended and began and self.now < one.began + LASTS and self.works(one.text)

    def begin(self, name: str, text: Text | None) -> Browser:
        """Somebody signs in; beyond twenty the one ends that was used longest ago."""
        mine = [one for one in self.browsers if one.name == name and not one.ended and self.kept(one)]
        for one in sorted(mine, key=lambda one: (one.began, one.order))[: max(0, len(mine) - MOST + 1)]:
            one.ended = True
        made = Browser(name, text, self.now, order=len(self.browsers))
        self.browsers.append(made)
        return made

    def kept(self, one: Browser) -> bool:
        """Whether a session is still somewhere: one that has ended by itself is no longer."""
        return self.now < one.began + LASTS

    def good(self, link: Link) -> bool:
        """Whether a link would sign in now."""
        return not link.used and self.passed < link.ends and self.works(link.text)

    def follow(self, link: Link) -> bool:
        """Whether a link signs in now; then it does so no more."""
        good = self.good(link)
        link.used = link.used or good
        return good

    def end_all(self, name: str) -> int:
        """Somebody is signed out everywhere; how many sessions that ended."""
        ending = [one for one in self.browsers if one.name == name and not one.ended and self.kept(one)]
        for one in ending:
            one.ended = True
        return len(ending)
