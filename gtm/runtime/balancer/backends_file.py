"""The file of a region's backends: read at the start, and again when it changes; a broken one changes nothing."""

from __future__ import annotations

import logging

from gtm.balancer import config
from gtm.balancer.config import BalancerDocument
from gtm.core.model.problems import PolicyError
from gtm.files import FileState, state_of
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)


class BackendsFile:
    """See above.

    Args:
        settings: name the file, or the backends themselves.

    Raises:
        PolicyError: with every problem in it.
    """

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings
        self._signature = self._look()
        self.document: BalancerDocument = self._read()
        self._started = self.document
        self._gone = False
        """The log says that there is no file."""

    @property
    def waits_for_start(self) -> tuple[str, ...]:
        """The fields of the file that have changed since the start, and count from the next one."""
        return self.document.later_than(self._started)

    def forget(self) -> None:
        """Let the next look find it changed, whatever it holds."""
        self._gone = False
        if self._settings.file is None:
            logger.info("there is no file of backends to read again: they were given by --backend")
        else:
            self._signature = (0, 0, 0, 0, 0)

    def changed(self) -> bool:
        """Whether the file has changed and is right; `document` is what it says now."""
        signature = self._look()
        if signature == self._signature:
            return False
        if signature is None:
            if not self._gone:
                self._gone = True
                logger.error(
                    "the file of backends `%s` cannot be found, going on with what was in it before",
                    self._settings.file,
                )
            return False
        self._gone = False
        self._signature = signature
        try:
            self.document = self._read()
        except PolicyError as error:
            logger.error(
                "the file of backends cannot be used, going on with what was in it before: %s", error
            )
            return False
        return True

    def _read(self) -> BalancerDocument:
        settings = self._settings
        if settings.file is not None:
            return config.load(settings.file)
        return config.of_urls(settings.backend, settings.service)

    def _look(self) -> FileState | None:
        return None if self._settings.file is None else state_of(self._settings.file)
