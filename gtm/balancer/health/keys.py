"""The key that checks show to servers which want one: from a file or the environment, and in no log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MAX_KEY = 4096
"""Characters of a key."""


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
        if self.file is not None:
            where = f"the file `{self.file}`"
            try:
                with self.file.open("rb") as file:
                    text = file.read(MAX_KEY + 2).decode("latin-1").strip()
            except OSError as error:
                raise KeyReadError(
                    f"{where} with the key of checks cannot be read: {error.strerror}"
                ) from error
        else:
            where = f"the variable `{self.env}`"
            text = os.environ.get(self.env or "", "").strip()
        if not text:
            raise KeyReadError(f"{where} holds no key for checks: put the server's key there")
        if len(text) > MAX_KEY or not (text.isascii() and text.isprintable()) or " " in text:
            raise KeyReadError(
                f"{where} holds no key: it must be one word of printable ASCII, at most {MAX_KEY} characters"
            )
        return text
