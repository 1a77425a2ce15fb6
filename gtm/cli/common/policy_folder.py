"""Reading policy folders, with everything wrong in them as one `CommandError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gtm.cli.common import output
from gtm.cli.common.exits import CommandError, Exit

if TYPE_CHECKING:
    from gtm.documents.folders import Folder


def require_readable(folder: Path) -> None:
    """Look whether a folder or file can be read.

    Raises:
        CommandError: it cannot.
    """
    try:
        if folder.is_dir():
            next(folder.iterdir(), None)
        else:
            folder.open("rb").close()
    except OSError as error:
        raise CommandError(f"cannot read `{folder}`: {(error.strerror or str(error)).lower()}") from error


def read_document(folder: Path) -> dict[str, Any]:
    """The folder as the control API takes it; which of its files were not read is said.

    Raises:
        CommandError: as `read_whole`.
    """
    return read_whole(folder).document().model_dump(mode="json")


def read_whole(folder: Path, *, alone: bool = True) -> Folder:
    """All of a folder; which of its files were not read is said. Not `alone`: it may refer to what is not in it.

    Raises:
        CommandError: it cannot be read, or has problems; all are listed.
    """
    from gtm.core.model.problems import PolicyError
    from gtm.documents.folders import check_references, read_folder

    require_readable(folder)
    with explained():
        with output.progress(f"reading {folder}"):
            read = read_folder(folder)
            problems = check_references(read)[0] if alone else read.problems
        for said in read.found.notes():
            output.note(said, "yellow")
        if problems:
            raise PolicyError(problems)
        return read


@contextmanager
def explained() -> Iterator[None]:
    """Turn what is wrong with a folder into a `CommandError` that lists it."""
    from pydantic import ValidationError

    from gtm.core.model.problems import PolicyError
    from gtm.documents.structure import problems_of

    try:
        yield
    except (PolicyError, ValidationError) as error:
        problems = error.problems if isinstance(error, PolicyError) else problems_of(error)
        message = (
            f"the policy has {len(problems)} problem{'' if len(problems) == 1 else 's'}; nothing was changed"
        )
        raise CommandError(message, Exit.BAD_INPUT, tuple(map(str, problems))) from error
    except OSError as error:
        raise CommandError(f"cannot read the policy: {str(error).lower()}") from error
