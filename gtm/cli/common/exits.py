"""Exit codes, and errors that end a command.

0 done; 1 the answer is no (a check failed, a plan has changes with --exit-code, a request is refused, a question was
answered with no, edges lack a revision when the time is up); 2 wrong usage or bad input; 3 a server cannot be reached,
or cannot answer; 4 not allowed (token missing, wrong or too weak); 5 cannot run here (port in use, data directory in use,
no permission, output that cannot be written); 130 interrupted; 141 whoever read the output went away (as of SIGPIPE).
docs/cli.md says the same.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit code means."""

    DONE = 0
    NO = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    NOT_ALLOWED = 4
    CANNOT_RUN = 5
    INTERRUPTED = 130
    READER_GONE = 141


class CommandError(Exception):
    """Ends a command with a message on standard error and an exit code.

    `problems` are listed below the message, one a line. `said` is the code of the problem document that a server answered
    with, if one did.
    """

    def __init__(
        self, message: str, code: Exit = Exit.BAD_INPUT, problems: tuple[str, ...] = (), said: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.problems = problems
        self.said = said
