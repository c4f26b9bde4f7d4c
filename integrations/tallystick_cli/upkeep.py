"""Commands of upkeep: check and mend, remove what is past its window, erase, back up, move,
rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tallystick.errors import InvalidInput
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick_cli import views
from tallystick_cli.options import Apply, AsJson, CheckOnly, Key, Reason, Token, Where
from tallystick_cli.output import print_json, print_preview, print_view, progress_bar
from tallystick_cli.person import confirm, require_person
from tallystick_cli.session import acting, id_of, open_as_owner
from tallystick_cli.table_help import help_of


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Show where the bytes are instead.")
    ] = False,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Check chains, commitments, jobs, retention and the index. Exits with 1 when something is
    wrong.
    """
    if sizes:
        if repair:
            raise InvalidInput("--sizes shows where the bytes are and mends nothing. Name one.")
        with open_as_owner(where) as owner:
            measured = owner.operator.sizes()
        if as_json:
            print_json(measured.dump())
        else:
            print_view(views.sizes_table(measured))
        return
    with open_as_owner(where) as owner:
        findings = owner.operator.doctor(repair=repair)
    if as_json:
        print_json([finding.dump() for finding in findings])
    else:
        print_view(views.doctor_table(findings))
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(1)


def purge(
    apply: Annotated[bool, typer.Option("--apply", help="Remove it.")] = False,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Count what is past its window; with --apply remove it. Nothing within its window goes."""
    with open_as_owner(where) as owner:
        result = owner.operator.purge(mode="apply" if apply else "preview", idempotency_key=key)
    if as_json:
        print_json(result.dump())
    else:
        print_view(views.purge_view(result))


def erase(
    memory: Annotated[
        list[str],
        typer.Argument(metavar="MEMORY…", help="Ids of memories, or how they begin or end."),
    ],
    reason: Reason,
    fragment: Annotated[
        list[str] | None,
        typer.Option("--fragment", help=help_of("erase", "fragments")),
    ] = None,
    apply: Apply = False,
    token: Token = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Preview the destruction of memories' text in every copy; with --apply and the --token do it,
    with proof.
    """
    if apply:
        require_person("tally erase --apply")
        confirm("destroy the text, which cannot be taken back", "erase")
    with open_as_owner(where) as owner:
        ids = [id_of(fragment) for fragment in memory]
        erasure = owner.operator.erase(
            ids,
            fragments=tuple(fragment or ()),
            reason=reason,
            mode="apply" if apply else "preview",
            confirm_token=token,
            idempotency_key=key,
        )
    if as_json:
        print_json(erasure.dump())
    else:
        print_preview(views.erasure_view(erasure), erasure.confirm_token)
    if any(not proof.holds for proof in erasure.proofs):
        raise typer.Exit(1)


def export(
    folder: Annotated[Path | None, typer.Argument(help=help_of("export", "folder"))] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Count it, write nothing.")] = False,
    where: Where = ".tally",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", "-s", help="A scope; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write scopes to a folder of JSON lines and blobs, each with its digest; by default all that
    one may take.
    """
    with open_as_owner(where) as owner, progress_bar("Exporting", "rows", as_json=as_json) as bar:
        chosen = [Scope.parse(name) for name in scope] if scope else _exportable(owner)
        task = bar.add_task("export", total=None, visible=not preview)
        transfer = owner.operator.export(
            folder,
            scopes=chosen,
            mode="preview" if preview else "apply",
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(transfer.dump())
    else:
        print_view(
            views.transfer_preview(transfer)
            if preview
            else views.transfer_view(transfer, verb="exported to", folder=folder or Path())
        )


def import_(
    folder: Annotated[Path, typer.Argument(help=help_of("import_from", "folder"))],
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Bring an export into a new tally, or beside what is there, all or nothing."""
    with (
        open_as_owner(where, create=True) as owner,
        progress_bar("Importing", as_json=as_json) as bar,
    ):
        task = bar.add_task("import", total=None)
        transfer = owner.operator.import_from(
            folder,
            idempotency_key=key,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(transfer.dump())
    else:
        print_view(views.transfer_view(transfer, verb="imported from", folder=folder))


def backup(
    folder: Annotated[Path, typer.Argument(help=help_of("backup", "folder"))],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Write the whole tally as it is now to a new folder, while others read and write."""
    with open_as_owner(where) as owner:
        result = owner.operator.backup(folder)
    if as_json:
        print_json(result.dump())
    else:
        print_view(views.backup_view(result, folder))


def restore(
    folder: Annotated[Path, typer.Argument(help="The folder of a backup.")],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new place, never over a tally: a folder or postgresql://…, whichever
    it was taken from. Digests, rows, chains and texts are checked before it is there.
    """
    with progress_bar("Restoring", as_json=as_json) as bar:
        task = bar.add_task("restore", total=None)
        result = Tally.restore(
            folder,
            where,
            actor=acting(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(result.dump())
    else:
        print_view(views.backup_view(result, Path(where)))


def migrate(
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would change; the default.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do it, check the result, and take it back.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Do it.")] = False,
    backup: Annotated[
        Path | None, typer.Option("--backup", help="A new folder for the backup before it.")
    ] = None,
    no_backup: Annotated[
        bool, typer.Option("--no-backup", help="Do it without a backup of ours.")
    ] = False,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Bring a tally of an older release to the schema of this one: say what changes, try it, or do
    it after a backup. By default only says it.
    """
    if plan + dry_run + apply > 1:
        raise InvalidInput("--plan, --dry-run and --apply are three things. Name one.")
    with progress_bar("Backing up", as_json=as_json) as bar:
        task = bar.add_task("backup", total=None, visible=backup is not None)
        result = Tally.migrate(
            where,
            mode="dry_run" if dry_run else "apply" if apply else "plan",
            backup=backup,
            without_backup=no_backup,
            actor=acting(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(result.dump())
    else:
        print_view(views.migration_view(result))


def rebuild_index(
    where: Where = ".tally", check: CheckOnly = False, as_json: AsJson = False
) -> None:
    """Make Chroma anew from the database; return the number of vectors. With --check only says
    whether it matches.
    """
    with open_as_owner(where) as owner:
        if check:
            reconciled = owner.tally.reconcile_index(repair=False)
            if as_json:
                print_json({**asdict(reconciled), "whole": reconciled.whole})
            else:
                print_view(views.reconciled_view(reconciled))
            if not reconciled.whole:
                raise typer.Exit(1)
            return
        with progress_bar("Rebuilding the index", as_json=as_json) as bar:
            task = bar.add_task("rebuild", total=None)
            rebuilt = owner.operator.rebuild_index(
                progress=lambda done, total: bar.update(task, completed=done, total=total)
            )
    if as_json:
        print_json(rebuilt.dump())
    else:
        print_view(views.rebuilt_view(rebuilt))


def _exportable(owner: BoundTally) -> list[Scope]:
    gate = services_of(owner.tally).gate
    return [
        scope
        for scope in owner.tally.scopes()
        if gate.require_or_none(owner.actor, "export", scope) is not None
    ]


COMMANDS: Mapping[str, Callable[..., None]] = {
    "doctor": doctor,
    "purge": purge,
    "erase": erase,
    "backup": backup,
    "restore": restore,
    "migrate": migrate,
    "export": export,
    "import": import_,
    "rebuild-index": rebuild_index,
}
