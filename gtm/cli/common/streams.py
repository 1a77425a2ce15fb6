"""Standard output and errors as commands find them: closed, full, broken off, or of a character set that lacks what gtm prints.

Laws:
  1. What a character set lacks is replaced (`?`), never an error. What programs read is in UTF-8 whatever the locale is
     (`gtm.cli.common.output.print_document`), and so whole.
  2. Output that cannot be written ends the command with one line; where its reader went away (`| head`), with none.
  3. What cannot be said on standard error is not said, and changes nothing.
  4. A stream that somebody else made non-blocking is waited for as others are.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import select
import sys
from collections.abc import MutableMapping
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


class _Waiting(io.FileIO):
    """A stream that is written to as if it blocked: `ssh`, Node.js and others leave pipes and terminals that do not."""

    def write(self, content: object, /) -> int | None:  # type: ignore[override]  # of whatever has a buffer
        while (written := super().write(content)) is None:  # type: ignore[arg-type]
            select.select((), (self,), ())
        return written


class _Output(_Waiting):
    """Standard output, whose failures are `OutputError`s."""

    def write(self, content: object, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(content)
        except OSError as error:
            raise OutputError(error) from error


class _Errors(_Waiting):
    """Standard error, which takes what it can."""

    def write(self, content: object, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes  # type: ignore[arg-type]


_SIZES = {"COLUMNS": range(20, 10_001), "LINES": range(2, 10_001)}
"""What terminals may have of them."""


def forget_sizes(environment: MutableMapping[str, str]) -> None:
    """Take out of an environment what no terminal's size is, so that the terminal is asked, or 80 columns taken.

    With 0, as pseudo-terminals of CI say that have no size, nothing would be printed at all, gigabytes with very many, and what is
    a digit elsewhere (`²`) ends the printer.
    """
    for name, sizes in _SIZES.items():
        found = environment.get(name)
        if found is not None and not (re.fullmatch("[0-9]{1,9}", found) and int(found) in sizes):
            del environment[name]


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
