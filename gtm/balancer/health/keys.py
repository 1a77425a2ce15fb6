"""The key that checks show to servers which want one: from a file or the environment, and in no log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gtm.secret import KEY, SecretError, clean, read_file


class KeyReadError(Exception):
    """A key cannot be read; the message says why, and never what it is."""


@dataclass(frozen=True, slots=True)
class CheckKey:
    """Where a key stands: in a file, which is read for each check so that a new one counts at once, or in a variable of the environment."""

    file: Path | None = None
    env: str | None = None

    def read(self) -> str:
        """The key.

        Raises:
            KeyReadError: there is none, or what is there cannot be a bearer token (RFC 6750 §2.1).
        """
        try:
            if self.file is not None:
                return read_file(self.file, "the file with the key of checks", KEY)
            return clean(os.environ.get(self.env or "", ""), f"the variable `{self.env}`", KEY)
        except SecretError as error:
            raise KeyReadError(f"there is no key for checks: {error}") from None
