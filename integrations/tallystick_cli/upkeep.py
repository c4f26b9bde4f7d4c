"""Commands of upkeep: check, purge, erase, prove, back up, move, rebuild."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from tallystick.errors import InvalidInput
from tallystick.records import Proof, Transfer
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.output import progress_bar
from tallystick_cli.session import acting, confirm, require_person
from tallystick_cli.views import upkeep as views

purge = operation_command("purge", views.purge_view)


@command("doctor", "sizes")
def doctor(
    call: Call, sizes: Annotated[bool, "Show where the bytes are instead."] = False
) -> Answer:
    """Check chains, commitments, jobs, retention, the index. Exits with 1 for a problem."""
    if sizes:
        measured = call.do("sizes")
        return Answer(measured, views.sizes_table(measured))
    findings = call.do("doctor")
    is_well = all(finding.status != "problem" for finding in findings)
    return Answer(findings, views.doctor_table(findings), is_well)


@command(
    "erase",
    helps={"fragments": "A piece of their text that names, ids or goals may hold."},
    note="To do it needs a person at a terminal.",
)
def erase(call: Call) -> Answer:
    if call.arguments.get("mode") == "apply":
        require_person("tally erase --apply")
        confirm("destroy the text, which cannot be taken back", "erase")
    erasure = call.do()
    is_gone = all(proof.holds for proof in erasure.proofs)
    return Answer(erasure, views.erasure_view(erasure), is_gone)


@command("erase_user", positional=("user",), note="To do it needs a person at a terminal.")
def erase_user(call: Call) -> Answer:
    if call.arguments.get("mode") == "apply":
        require_person("tally erase-user --apply")
        confirm("destroy everything of this user, which cannot be taken back", "erase")
    erased = call.do()
    return Answer(
        erased, views.erased_user_view(erased), erased.proof is None or erased.proof.holds
    )


@command("prove_unreachable", "prove_erased")
def prove(call: Call) -> Answer:
    """Prove that a forgotten memory is reached by nothing, an erased one held by nothing. Exits
    with 1 if it is.
    """
    history = call.owner.inspect(call.arguments["memory_id"]).history
    is_erased = "text" in call.arguments or any(entry.event == "ERASE" for entry in history)
    proof: Proof = call.do("prove_erased" if is_erased else "prove_unreachable")
    return Answer(proof, views.proof_view(proof), proof.holds)


@command(
    "export",
    positional=("folder",),
    helps={"scopes": "Such as project:apollo; by default all that you may take."},
)
def export(call: Call) -> Answer:
    arguments = call.arguments
    arguments["scopes"] = arguments.get("scopes") or _exportable(call.owner)
    with progress_bar("Exporting", "rows", hidden=call.as_json or "mode" in arguments) as advance:
        transfer: Transfer = call.owner.operator.export(**arguments, progress=advance)
    what = "would be exported" if "mode" in arguments else f"exported to {arguments['folder']}"
    return Answer(transfer, views.transfer_view(transfer, what))


def _exportable(owner: BoundTally) -> list[str]:
    gate, actor = services_of(owner.tally).gate, owner.actor
    return [
        str(scope)
        for scope in owner.tally.scopes()
        if gate.require_or_none(actor, "export", scope) is not None
    ]


@command("import_from", positional=("folder",), tally="create")
def import_(call: Call) -> Answer:
    with progress_bar("Importing", hidden=call.as_json) as advance:
        transfer = call.owner.operator.import_from(**call.arguments, progress=advance)
    what = f"imported from {call.arguments['folder']}"
    return Answer(transfer, views.transfer_view(transfer, what))


@command("backup", positional=("folder",))
def backup(call: Call) -> Answer:
    result = call.do()
    return Answer(result, views.backup_view(result, call.arguments["folder"]))


@command(tally="place")
def restore(call: Call, folder: Annotated[str, "The folder of a backup."], /) -> Answer:
    """Restore a backup into a new place, never over a tally: a folder or postgresql://…, whichever
    it was taken from. Digests, rows, chains and texts are checked before it is there.
    """
    with progress_bar("Restoring", hidden=call.as_json) as advance:
        result = Tally.restore(folder, call.where, actor=acting(), progress=advance)
    return Answer(result, views.backup_view(result, call.where))


@command(tally="place")
def migrate(
    call: Call,
    plan: Annotated[bool, "Only say what would change; the default."] = False,
    dry_run: Annotated[bool, "Do it, check the result, and take it back."] = False,
    apply: Annotated[bool, "Do it."] = False,
    backup: Annotated[str | None, "A new folder for the backup before it."] = None,
    no_backup: Annotated[bool, "Do it without a backup of ours."] = False,
) -> Answer:
    """Bring a tally of an older release to the schema of this one: say what changes, try it, or do
    it after a backup. By default only says it.
    """
    if plan + dry_run + apply > 1:
        raise InvalidInput("--plan, --dry-run and --apply are three things. Name one.")
    with progress_bar("Backing up", hidden=call.as_json or backup is None) as advance:
        result = Tally.migrate(
            call.where,
            mode="dry_run" if dry_run else "apply" if apply else "plan",
            backup=backup,
            without_backup=no_backup,
            actor=acting(),
            progress=advance,
        )
    return Answer(result, views.migration_view(result))


@command("rebuild_index", without=("reason",), note="With --check only says whether it matches.")
def rebuild_index(
    call: Call,
    check: Annotated[bool, "Change nothing; exit with 1 when it does not match."] = False,
    reason: Annotated[str, "Why; it is kept in the journal. Needed but for --check."] = "",
) -> Any:
    if check:
        compared = call.owner.tally.reconcile_index(repair=False)
        value = {**asdict(compared), "whole": compared.whole}
        return Answer(value, views.reconciled_view(compared), compared.whole)
    with progress_bar("Rebuilding the index", hidden=call.as_json) as advance:
        rebuilt = call.owner.operator.rebuild_index(reason=reason, progress=advance)
    return Answer(rebuilt, views.rebuilt_view(rebuilt))
