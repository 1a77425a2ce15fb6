"""`gtm export`: the policy in force as YAML files that `gtm apply` takes, or as Terraform's configuration; or lists for proxies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError
from gtm.documents.lists import ListFormat

if TYPE_CHECKING:
    from gtm.documents.schema import PolicyDocument


app = typer.Typer()


class ExportFormat(StrEnum):
    """The language of an export."""

    YAML = "yaml"
    HCL = "hcl"


@asks(app)
def export(
    ask: Command,
    folder: Annotated[
        str, typer.Argument(help="The folder to write to; `-`: one document on standard output.")
    ] = "",
    *,
    lists: Annotated[
        ListFormat | None,
        typer.Option(
            "--for",
            help="In place of the policy, where requests may go now: regions, weights and endpoints as a file that such a proxy reads.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="With --for: the folder to write to.")] = None,
    service: Annotated[
        str | None, typer.Option("--service", help="With --for: only this service; left out: each.")
    ] = None,
    data_class: Annotated[
        list[str] | None,
        typer.Option(
            "--data-class",
            help="With --for: only requests of this class; several: given again. Left out: each, and one file for all together.",
        ),
    ] = None,
    client_country: Annotated[
        str | None,
        typer.Option("--client-country", help="With --for: where the clients are (DE); left out: anywhere."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="With --for: go on, and write what changes, until ended.")
    ] = False,
    then: Annotated[
        str | None,
        typer.Option("--then", help="With --for: the command to run after a change: `nginx -s reload`."),
    ] = None,
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="The language: `hcl` is Terraform's, as resources of gtm's provider."),
    ] = ExportFormat.YAML,
    imports: Annotated[
        bool,
        typer.Option("--imports", help="With import blocks, by which Terraform takes over what control has."),
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help="A folder of YAML and JSON files, or one file, to write as HCL without any server.",
        ),
    ] = None,
    admin_states: Annotated[
        bool, typer.Option(help="With the regions' admin states: applied again, they undo later drains.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier export.")
    ] = False,
) -> None:
    """Write the policy in force as YAML or as Terraform's configuration: a file per kind, or one document.

    Applied again, it changes nothing. With --for, the files that Envoy, HAProxy, NGINX or llm-d's router read instead.
    """
    if lists is not None:
        if folder or out is None or policy is not None or imports or admin_states or overwrite:
            raise CommandError(
                "--for takes --out FOLDER, and none of the options of a policy; nothing was written"
            )
        from gtm.cli.policy import listing

        wanted = listing.WantedLists(lists, out, service, client_country, tuple(data_class or ()), then)
        listing.write(ask, wanted, watch=watch)
        return
    if not folder or out is not None or service or data_class or client_country or watch or then is not None:
        raise CommandError(
            "give the folder to write the policy to, or --for to write lists; nothing was written"
        )
    _require_sense(form, imports=imports, policy=policy, admin_states=admin_states)
    if form is ExportFormat.HCL and folder == "-" and ask.as_json:
        raise CommandError("standard output is one of HCL and JSON: leave out --format hcl or --json")
    if policy is None:
        found: Any = ask.api.get_policy(admin_states=admin_states or None)
        revision, source, document = found.revision, f"revision {found.revision}", found.policy
    else:
        from gtm.cli.common.policy_folder import read_document

        revision, source, document = None, str(policy), read_document(policy)
    texts = _yaml(document) if form is ExportFormat.YAML else _hcl(document, imports=imports)
    if folder == "-":
        if not ask.printed_json(document):
            output.print_document(texts.whole)
        return
    written = _write(Path(folder), texts, overwrite=overwrite)
    if not ask.printed_json({"revision": revision, "files": [str(path) for path in written]}):
        output.say(f"{source} written to {folder}: {', '.join(p.name for p in written)}")


def _require_sense(form: ExportFormat, *, imports: bool, policy: Path | None, admin_states: bool) -> None:
    """Say which options do not go with a format.

    Raises:
        CommandError: one was given.
    """
    if form is ExportFormat.HCL and admin_states:
        message = "Terraform's regions have no admin state, so that no plan undoes a drain: leave out --admin-states"
        raise CommandError(f"{message}; nothing was written")
    if form is ExportFormat.YAML and (imports or policy is not None):
        option = "--imports" if imports else "--policy"
        raise CommandError(f"{option} is for --format hcl; nothing was written")


@dataclass(frozen=True, slots=True)
class _Texts:
    """An export: the text of each file that the policy needs, and all in one.

    `vacant` is the text of every other file that an export may write, which it does only over one of an earlier export: what
    that holds would otherwise come back. `alone`: other policy files, in the folder or below it, would define things twice.
    """

    files: Mapping[str, str]
    whole: str
    vacant: Mapping[str, str]
    alone: bool = False


def _yaml(document: dict[str, Any]) -> _Texts:
    policy = {kind: items for kind, items in document.items() if items}
    return _Texts(
        {f"{kind}.yaml": output.yaml_text({kind: items}) for kind, items in policy.items()},
        output.yaml_text(policy),
        {f"{kind}.yaml": output.yaml_text({kind: []}) for kind in document if kind not in policy},
        alone=True,
    )


def _hcl(document: dict[str, Any], *, imports: bool) -> _Texts:
    from gtm.documents.terraform import export as hcl

    policy = _read(document)
    changed = hcl.not_normal(policy)
    output.warn(
        f"{one} holds text that is not in Unicode's normal form C; Terraform makes it so" for one in changed
    )
    files = hcl.files(policy, imports=imports)
    vacant = {name: hcl.HEAD for name in hcl.FILES if name not in files}
    return _Texts(files, hcl.joined(files), vacant)


def _read(document: dict[str, Any]) -> PolicyDocument:
    """The policy as control sent it.

    Raises:
        CommandError: control is newer, and policies have fields that are not known here.
    """
    from pydantic import ValidationError

    from gtm.documents.schema import PolicyDocument
    from gtm.documents.structure import problems_of

    try:
        return PolicyDocument.model_validate(document)
    except ValidationError as error:
        problems = tuple(str(problem) for problem in problems_of(error, document))
        message = "control's policy is not known here: use a `gtm` of its version; nothing was written"
        raise CommandError(message, problems=problems) from error


def _write(folder: Path, texts: _Texts, *, overwrite: bool) -> list[Path]:
    """Write the files; one of a kind that is empty now is emptied, since applying it would bring it back.

    Raises:
        CommandError: the folder holds other policy files, or cannot be written; then nothing was written, or each
            file is either the old or the new one.
    """
    from gtm.documents.policy_files import names_within
    from gtm.files import write_whole

    ours = {**texts.files, **texts.vacant}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = {name for name in ours if (folder / name).exists()}
        if texts.alone:
            present.update(names_within(folder, expectations=False))
        _require_room(folder, present, set(ours), overwrite=overwrite)
        written = []
        for name, text in ours.items():
            if name in texts.files or name in present:
                write_whole(folder / name, text.encode(), mode=0o666)
                written.append(folder / name)
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
