"""Names of ranking classes: the same on every edge, in control, and across revisions."""

from __future__ import annotations

from typing import NamedTuple

from gtm.core.model.joined import cut, join

_PARTS, _ORDER = "|", ">"


class ClassKey(NamedTuple):
    """A ranking class by name (`gtm.core.decision.ranking.class_key` says what is in it).

    `order` are the first regions in the order of preference, `digest` stands for all that are allowed. As text
    (`chat|real_time|fra>dub|1f2e3d4c`) it keys plans and demand.
    """

    service: str
    priority: str
    order: tuple[str, ...]
    digest: str

    @classmethod
    def parse(cls, text: str) -> ClassKey:
        """A key from its text.

        Raises:
            ValueError: it is none.
        """
        parts = cut(_PARTS, text)
        if len(parts) != 4:
            raise ValueError(f"`{text[:100]}` is no ranking class: it has {len(parts)} parts instead of 4")
        service, priority, order, digest = parts
        return cls(service, priority, tuple(cut(_ORDER, order)) if order else (), digest)

    @property
    def text(self) -> str:
        """The key as it travels."""
        return join(_PARTS, (self.service, self.priority, join(_ORDER, self.order), self.digest))
