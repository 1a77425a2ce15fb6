"""The first admin token, until somebody has seen it: a start that made it may be ended at any moment before it shows it.

Law: it is on disk before it is in the database, and stays there until it has been shown. So none counts that nobody has seen.
"""

from __future__ import annotations

from pathlib import Path

from gtm.files import write_whole


class FirstToken:
    """The file `first-admin-token` of a data directory, which nobody but its owner may read.

    Args:
        data_dir: the data directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "first-admin-token"

    def keep(self, text: str) -> None:
        """Keep the text of a token that is about to count.

        Raises:
            OSError: the disk refuses.
        """
        write_whole(self._path, f"{text}\n".encode())

    @property
    def text(self) -> str | None:
        """What is kept; it may never have come to count. None: nothing.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return self._path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None

    def forget(self) -> None:
        """It has been shown, or counts no more.

        Raises:
            OSError: the disk refuses.
        """
        self._path.unlink(missing_ok=True)
