"""`serve.json` in the data directory: where a running `gtm serve` is, for scripts and other commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gtm.files import write_whole
from gtm.nesting import shallow


@dataclass(frozen=True, slots=True)
class ServeFacts:
    """Base URLs of control and of the edge's HTTP, host and port of its DNS, and the supervisor's process id."""

    control: str
    edge: str
    dns: str
    process: int

    @staticmethod
    def path(data_dir: Path) -> Path:
        """Where the file is in a data directory."""
        return data_dir / "serve.json"

    @classmethod
    def read(cls, data_dir: Path) -> ServeFacts:
        """What the `gtm serve` of a data directory wrote, if it runs.

        Raises:
            OSError: there is none.
            ValueError: it is damaged.
        """
        return msgspec.json.decode(shallow(cls.path(data_dir).read_bytes()), type=cls)

    def write(self, data_dir: Path) -> None:
        """Put it where other commands find it, whole or not at all."""
        write_whole(self.path(data_dir), msgspec.json.format(msgspec.json.encode(self)) + b"\n", mode=0o666)


def host_and_port(text: str) -> tuple[str, int]:
    """The host and port of a URL, or of `HOST:PORT`.

    Raises:
        ValueError: there is none.
    """
    parts = urlsplit(text if "//" in text else f"//{text}")
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"`{text}` has no host and port")
    return parts.hostname, parts.port
