"""What commands print: tables for people, JSON for scripts, progress for what takes time.

Law: what was asked for goes to standard output; everything about the work itself goes to standard error. Whatever
comes from elsewhere is printed as text: neither markup nor terminal control codes in it have any effect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from gtm.cli.common.exits import CommandError
from gtm.secret import redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text

Column = str | Callable[[Any], Any]
"""What a column shows of a record: a field, or what is made of the record."""
_PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe."""

STYLES = {
    "up": "green",
    "active": "green",
    "served": "green",
    "created": "green",
    "IN_SYNC": "green",
    "ok": "green",
    "down": "red",
    "deleted": "red",
    "failed": "red",
    "revoked": "red",
    "expired": "red",
    "disabled": "yellow",
    "draining": "yellow",
    "updated": "yellow",
    "PENDING": "yellow",
    "unknown": "yellow",
}


def out() -> Console:
    """Standard output."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, soft_wrap=False, width=width)


def err() -> Console:
    """Standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def plain(value: Any) -> str:
    """A value as printable text; nothing for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def text(value: Any, style: str = "") -> Text:
    """A value as a printer takes it."""
    from rich.text import Text

    return value if isinstance(value, Text) else Text(plain(value), style=style)


def styled(word: Any) -> Text:
    """A word of gtm's own, in its colour."""
    return text(word, STYLES.get(plain(word), ""))


def say(line: str | Text, style: str = "") -> None:
    """A line on standard output."""
    out().print(text(line, style), soft_wrap=True)


def note(line: str, style: str = "") -> None:
    """A line on standard error."""
    err().print(text(line, style))


def warn(warnings: Iterable[Any]) -> None:
    """Warnings, one a line, on standard error."""
    for warning in warnings:
        note(f"warning: {plain(warning)}", "yellow")


def print_json(value: Any) -> None:
    """JSON for scripts."""
    print_document(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: Any) -> None:
    """JSON on a line of its own, for scripts that read while more comes."""
    print_document(json.dumps(value, ensure_ascii=False) + "\n")


def print_document(document: str) -> None:
    """A text that programs read, as gtm's own files are read: UTF-8 whatever the locale is (RFC 8259 §8.1, YAML 1.2 §5.2)."""
    sys.stdout.flush()
    sys.stdout.buffer.write(document.encode(errors="replace"))
    sys.stdout.flush()


def yaml_text(policy: dict[str, Any]) -> str:
    """A policy from an answer as YAML."""
    from gtm.documents import yamls

    # Answers' objects are of a class of their own, which YAML has no notion of.
    return yamls.dump(json.loads(json.dumps(policy)))


def records(found: Iterable[Any], columns: Mapping[str, Column], *, empty: str) -> None:
    """A table with a line for each record.

    Args:
        found: the records.
        columns: what each shows, by its heading.
        empty: what to say instead if there are no records.
    """
    table(tuple(columns), [cells(one, columns) for one in found], empty=empty)


def cells(record: Any, columns: Mapping[str, Column]) -> list[Any]:
    """What columns show of a record."""
    return [record[of] if isinstance(of, str) else of(record) for of in columns.values()]


def moment(field: str) -> Column:
    """A column of moments."""
    return lambda one: when(one[field])


def word(field: str) -> Column:
    """A column of gtm's own words, in their colours."""
    return lambda one: styled(one[field])


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """A table; cells are text or already `Text`, numbers stand to the right.

    Args:
        headings: of the columns.
        rows: of cells.
        empty: what to say instead if there are no rows.
    """
    from rich.table import Table

    held = [list(row) for row in rows]
    if not held:
        say(empty)
        return
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for index, heading in enumerate(headings):
        numeric = all(isinstance(row[index], (int, float)) or row[index] is None for row in held)
        made.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in held:
        made.add_row(*map(text, row))
    _print(made)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one a line; what is empty is left out."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", [], {}):
            made.add_row(name, text(value))
    _print(made)


def _print(made: Table) -> None:
    """A table, without the spaces that would pad its lines in files."""
    console = out()
    with console.capture() as captured:
        console.print(made)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def when(moment: Any) -> str:
    """A moment (RFC 3339 text, or POSIX seconds) as people read it, in UTC; empty for none."""
    if isinstance(moment, (int, float)):
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S") if moment else ""
    if not isinstance(moment, str):
        return ""
    try:
        return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return plain(moment)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Progress]:
    """A progress bar on a terminal's standard error, gone when the work is done. Its one task is number 0.

    Args:
        what: is being done.
        total: how many steps, None if unknown.
    """
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        *((bars.MofNCompleteColumn(),) if total is not None else ()),
        bars.TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=total)
        yield bar


def end(error: CommandError) -> NoReturn:
    """Say what is wrong, and exit with its code."""
    from rich.markup import escape

    console = err()
    console.print(f"[bold red]error:[/] {escape(redact(str(error)))}")
    for problem in error.problems:
        console.print(f"  [red]•[/] {escape(redact(problem))}")
    sys.exit(error.code)
