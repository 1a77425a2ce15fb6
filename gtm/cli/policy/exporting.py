"""`gtm export`: the policy in force as YAML files that `gtm apply` takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(export)


def export(
    folder: Annotated[
        str, typer.Argument(help="The folder to write to; `-`: one document on standard output.")
    ],
    *,
    admin_states: Annotated[
        bool, typer.Option(help="With the regions' admin states: applied again, they undo later drains.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier export.")
    ] = False,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the policy in force as YAML: a file per kind, or one document. Applied again, it changes nothing."""
    from gtm.cli.common import client, output

    api = client.control(control_url, token)
    found = api.get("/v1/policy", admin_states="true" if admin_states else None)
    policy = {kind: items for kind, items in found["policy"].items() if items}
    if folder == "-":
        if as_json:
            output.print_json(found["policy"])
        else:
            typer.echo(output.yaml_text(policy), nl=False)
        return
    written = _write(Path(folder), policy, tuple(found["policy"]), overwrite=overwrite)
    if as_json:
        output.print_json({"revision": found["revision"], "files": [str(path) for path in written]})
    else:
        output.say(f"revision {found['revision']} written to {folder}: {', '.join(p.name for p in written)}")


def _write(folder: Path, policy: dict[str, Any], kinds: tuple[str, ...], *, overwrite: bool) -> list[Path]:
    """Write a file per kind; a file of a kind that is empty now is emptied, since applying it would bring it back.

    Raises:
        CommandError: the folder holds other policy files, or cannot be written; then nothing was written, or each
            file is either the old or the new one.
    """
    from gtm.cli.common import output
    from gtm.documents.folders import EXPECTATIONS, SUFFIXES

    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = {
            path.name for path in folder.iterdir() if path.suffix in SUFFIXES and path.name != EXPECTATIONS
        }
        _require_room(folder, present, {f"{kind}.yaml" for kind in kinds}, overwrite=overwrite)
        written = []
        for kind in kinds:
            path = folder / f"{kind}.yaml"
            if kind in policy or path.name in present:
                _replace(path, output.yaml_text({kind: policy.get(kind, [])}))
                written.append(path)
    except OSError as error:
        raise CommandError(f"cannot write to `{folder}`: {(error.strerror or str(error)).lower()}") from error
    return written


def _require_room(folder: Path, present: set[str], ours: set[str], *, overwrite: bool) -> None:
    others = sorted(present - ours)
    if others:
        message = (
            f"`{folder}` holds policy files of its own ({', '.join(others)}), which would define things twice"
        )
        raise CommandError(f"{message}: export to another folder; nothing was written")
    if present and not overwrite:
        message = f"`{folder}` holds {', '.join(sorted(present))} already"
        raise CommandError(
            f"{message}: give --overwrite to replace them, or another folder; nothing was written"
        )


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
