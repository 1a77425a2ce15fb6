"""Standard output and errors as commands find them: closed, full, broken off, or of a character set that lacks what gtm prints.

Laws:
  1. What a character set lacks is replaced (`?`), never an error. What programs read is in UTF-8 whatever the locale is
     (`gtm.cli.common.output.print_document`), and so whole.
  2. Output that cannot be written ends the command with one line; where its reader went away (`| head`), with none.
  3. What cannot be said on standard error is not said, and changes nothing.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import TextIO

from gtm.cli.common.exits import Exit

_ASCII = "gtm_ascii"
"""ASCII by another name: Click takes what is called `ascii` for a mistake, and writes UTF-8 in its place."""


class OutputError(Exception):
    """Standard output takes no more. No OSError: libraries take those of a pipe for theirs, and end with codes of their own."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.gone = error.errno == errno.EPIPE
        """Whoever read it went away."""


class _Output(io.FileIO):
    """Standard output, whose failures are `OutputError`s."""

    def write(self, content: object, /) -> int | None:  # type: ignore[override]  # of whatever has a buffer
        try:
            return super().write(content)  # type: ignore[arg-type]
        except OSError as error:
            raise OutputError(error) from error


class _Errors(io.FileIO):
    """Standard error, which takes what it can."""

    def write(self, content: object, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(content)  # type: ignore[arg-type]
        except OSError:
            return memoryview(content).nbytes  # type: ignore[arg-type]


def open_all() -> None:
    """Make standard input, output and errors such that no caller, text or reader ends a command with a traceback.

    What is closed is opened to nothing: a socket would get its number, and what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None and os.open(os.devnull, os.O_RDWR) == number:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    sys.stdout = _opened(sys.stdout, _Output)
    sys.stderr = _opened(sys.stderr, _Errors)


def _ascii(name: str) -> codecs.CodecInfo | None:
    """The codec `_ASCII`, for Python."""
    if name != _ASCII:
        return None
    plain = codecs.lookup("ascii")
    return codecs.CodecInfo(
        plain.encode,
        plain.decode,
        incrementalencoder=plain.incrementalencoder,
        incrementaldecoder=plain.incrementaldecoder,
        name=name,
    )


codecs.register(_ascii)


def _opened(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    try:
        number = stream.fileno()
    except (
        OSError,
        AttributeError,
    ):  # none of the system's: a test's, or another program's that has gtm in it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        return stream
    stream.flush()
    raw = kind(number, "w", closefd=False)
    terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        _ASCII if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding,
        "replace",
        line_buffering=terminal or kind is _Errors,
    )


def finish() -> None:
    """Write out what is held back of the output.

    It runs last, while the command's own end is on its way.
    """
    try:
        sys.stdout.flush()
    except OutputError as error:
        end(error)


def end(error: OutputError) -> None:
    """End the command whose output cannot be written."""
    # Python writes out at its end what is held back, and would fail again.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
    if error.gone:
        sys.exit(Exit.READER_GONE)
    sys.stderr.write(f"error: cannot write the output: {str(error).lower()}\n")
    sys.exit(Exit.CANNOT_RUN)
