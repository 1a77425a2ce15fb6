"""`gtm import`: zones and steering of other systems as a policy folder to go on from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gtm.cli.common import options, output
from gtm.cli.common.exits import CommandError, Exit

if TYPE_CHECKING:
    from gtm.documents.imports.parts import ImportedZone


app = typer.Typer()


class SourceFormat(StrEnum):
    """The system that wrote a file."""

    OCTODNS = "octodns"
    ROUTE53 = "route53"
    GDNSD = "gdnsd"
    ZONEFILE = "zonefile"


@app.command("import")
def import_(
    source: Annotated[SourceFormat, typer.Argument(help="What the file is of.")],
    file: Annotated[
        Path,
        typer.Argument(
            help="octoDNS's YAML of the zone; what `aws route53 list-resource-record-sets` prints; gdnsd's zone file; "
            "BIND's zone file."
        ),
    ],
    *,
    zone: Annotated[str, typer.Option("--zone", help="The zone's name: example.com.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="gdnsd's configuration, for its dynamic names.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write; a new or empty one. [default: the zone's name]"),
    ] = None,
    accept_losses: Annotated[
        bool, typer.Option("--accept-losses", help="Exit with 0 though something is not taken over.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a policy folder from another system's zone, and say what is not taken over.

    Exit code 1: the folder is written, and something of the file is not in it (0 with --accept-losses). What the file does
    not say, such as where a region stands, is asked for in comments, and by `gtm check`.
    """
    from gtm.documents.imports.parts import ImportProblem, report
    from gtm.documents.imports.policy import draft, zone_name
    from gtm.documents.imports.render import files

    if config is not None and source is not SourceFormat.GDNSD:
        raise CommandError("--config is for gdnsd alone; nothing was written")
    try:
        name = zone_name(zone)
        made = draft(name, _source(source, file, name, config))
    except ImportProblem as error:
        raise CommandError(f"cannot import `{file}`: {error}; nothing was written") from error
    if not (made.zone["records"] or made.services or "name_servers" in made.zone):
        hint = f"is it of zone `{name}`, and {source.value}'s?"
        raise CommandError(
            f"nothing in `{file}` can be taken over: {hint} Nothing was written",
            problems=report(made.notes, file.name),
        )
    folder = out or Path(name)
    written = _write(folder, files(made, f"{source.value}, {file.name}"))
    lost = [note for note in made.notes if note.lost]
    reworded = [note for note in made.notes if not note.lost]
    if as_json:
        kinds = {"not_taken_over": lost, "in_other_words": reworded}
        said = {kind: [note.said(file.name) for note in notes] for kind, notes in kinds.items()}
        output.print_json({"files": [str(path) for path in written], **said})
    else:
        sets = len(made.zone["records"])
        counts = {"set of records": sets, "service": len(made.services), "region": len(made.regions)}
        sizes = ", ".join(f"{count} {_many(what, count)}" for what, count in counts.items())
        output.say(f"{sizes} written to {folder}: {', '.join(path.name for path in written)}")
        for title, notes in (
            ("not taken over:", lost),
            ("taken over in other words:", reworded),
        ):
            if notes:
                output.say("\n  - ".join((title, *report(notes, file.name))))
        if lost:
            output.say(
                f"nothing else of {file.name} is missing; --json lists each, --accept-losses makes it exit code 0"
            )
        output.say(f"next: fill in what the comments ask for, until `gtm check {folder}` is content")
    if lost and not accept_losses:
        raise typer.Exit(Exit.NO)


def _many(what: str, count: int) -> str:
    word, space, rest = what.partition(" ")
    return what if count == 1 else f"{word}s{space}{rest}"


def _source(source: SourceFormat, file: Path, zone: str, config: Path | None) -> ImportedZone:
    from gtm.documents.imports import gdnsd, octodns, route53

    if source is SourceFormat.GDNSD:
        return gdnsd.read(_read(file), zone, None if config is None else _read(config))
    if source is SourceFormat.ZONEFILE:
        return gdnsd.read_plain(_read(file), zone)
    return {SourceFormat.OCTODNS: octodns.read, SourceFormat.ROUTE53: route53.read}[source](_read(file))


def _read(file: Path) -> str:
    """A file's text, a little more than is accepted at most.

    Raises:
        CommandError: it cannot be read.
    """
    from gtm.documents.imports.parts import MAX_BYTES

    try:
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read `{file}`: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"cannot read `{file}`: it is no text in UTF-8") from error


def _write(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write new files into a folder without any policy file.

    Raises:
        CommandError: it has one, or cannot be written.
    """
    from gtm.core.model.references import some
    from gtm.documents.policy_files import names_within

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if present := names_within(folder):
            message = f"`{folder}` holds {some(present, 'files')} already: import into another folder"
            raise CommandError(f"{message}; nothing was written")
        written = []
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as stream:
                stream.write(text)
            written.append(folder / name)
    except OSError as error:
        raise CommandError(f"cannot write to `{folder}`: {(error.strerror or str(error)).lower()}") from error
    return written
