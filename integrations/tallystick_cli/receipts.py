"""Commands about receipts: the context of a step, its changes, its origins, and verification."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tallystick.errors import InvalidInput, NotFound
from tallystick.recorder import is_bundle, verify_bundle, write_tape
from tallystick.recorder.bundle import bundle_in
from tallystick.recorder.signing import new_key
from tallystick.records import Foil, RunRecord, StepRecord, Verification, VerificationProblem
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_cli.options import (
    AsJson,
    FoilText,
    StepId,
    Where,
)
from tallystick_cli.output import print_json, print_result, print_view
from tallystick_cli.session import id_of, open_as_owner, recorded
from tallystick_cli.table_help import help_of
from tallystick_html import receipt_page, says_its_bundle

_WHOLE = 36
"""Characters of an id."""


def verify(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Id of a run, or how it begins or ends; or a bundle."),
    ],
    foil: FoilText = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", help="Of the one who signed the bundle.", exists=True),
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Check every byte that the receipts of a run, or a bundle, cover. Exits with 1 when something
    does not match.
    """
    key = None if public_key is None else public_key.read_bytes()
    if is_bundle(Path(run)):
        named = None if foil is None else verify_bundle(Path(run)).run_id
        answer = verify_bundle(
            Path(run), foil=None if named is None else _foil(named, foil), public_key=key
        )
        answer = _with_page(answer, Path(run).read_bytes())
    elif Path(run).is_file():
        raise InvalidInput(f"{run} is no bundle of a receipt, or a damaged one.")
    elif key is not None:
        raise InvalidInput(
            "--public-key checks the signature of a bundle; `tally export-receipt` makes one."
        )
    else:
        with open_as_owner(where) as owner:
            run_id = recorded(owner, run).run_id
            answer = owner.verify(run_id, foil=_foil(run_id, foil))
    print_result(answer, views.verification_view, as_json=as_json)
    if not answer.ok:
        raise typer.Exit(1)


def export_receipt(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of a run, or how it begins or ends.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by default RUN.receipt.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Private key in PEM.", exists=True)
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Write a run as one file that `tally verify FILE` checks without the tally."""
    with open_as_owner(where) as owner:
        run_id = recorded(owner, run).run_id
        content = owner.recordings.export_receipt(
            run_id, key=None if sign is None else sign.read_bytes()
        )
    file = out or Path(f"{views.short(run_id)}.receipt")
    _write_private(file, content)
    foil = verify_bundle(content).foil
    if as_json:
        print_json({"file": str(file), "bytes": len(content), "foil": foil.dump()})
        return
    print_view(
        Text(
            f"✓ {file} ({len(content):,} bytes){', signed' if foil.signature else ''}",
            style="green",
        )
    )
    print_view(Text(f"  foil: {foil.count}:{foil.head}", style="cyan"))


def receipt(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of a run, or how it begins or ends.")
    ],
    html: Annotated[
        Path | None,
        typer.Option("--html", help="File to write: one page that shows the run and holds it."),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option("--sign", help="Private key in PEM; for the page.", exists=True),
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Show the receipts of a run, or write it as one page that anybody can open and check."""
    if html is None and sign is not None:
        raise InvalidInput("--sign signs what a page holds: give --html FILE too.")
    with open_as_owner(where) as owner:
        run_id = recorded(owner, run).run_id
        receipts = owner.recordings.receipts(run_id)
        content = (
            None
            if html is None
            else owner.recordings.export_receipt(
                run_id, key=None if sign is None else sign.read_bytes()
            )
        )
    if html is None or content is None:
        print_result(receipts, views.receipt_table, as_json=as_json)
        return
    page = receipt_page(content)
    _write_private(html, page)
    foil = verify_bundle(content).foil
    if as_json:
        print_json({"file": str(html), "bytes": len(page), "foil": foil.dump()})
        return
    print_view(
        Text(f"✓ {html} ({len(page):,} bytes){', signed' if foil.signature else ''}", style="green")
    )
    print_view(Text(f"  foil: {foil.count}:{foil.head}", style="cyan"))


def _write_private(file: Path, content: bytes) -> None:
    """Write what an agent was told: for whoever runs this, until he gives it to somebody."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(file, flags, 0o600), "wb") as stream:
        stream.write(content)


def _with_page(answer: Verification, content: bytes) -> Verification:
    """Return what a bundle came to, with whether the page around it says the same."""
    if bundle_in(content) == content:
        return answer
    agrees = says_its_bundle(content)
    if agrees is None:
        unproven = "that the page says what the record in it says: another release made it"
        return answer.replace(cannot_prove=(*answer.cannot_prove, unproven))
    if agrees:
        return answer
    problem = VerificationProblem(where="page", problem="says something else than the record in it")
    return answer.replace(ok=False, problems=(*answer.problems, problem))


def diff(before: StepId, after: StepId, where: Where = ".tally", as_json: AsJson = False) -> None:
    """Show how two steps differ: what they saw, what they asked, what they were answered."""
    with open_as_owner(where) as owner:
        result = owner.recordings.diff(_step(owner, before).step_id, _step(owner, after).step_id)
    print_result(result, views.step_diff_view, as_json=as_json)


def why(step: StepId, where: Where = ".tally", as_json: AsJson = False) -> None:
    """Say what the agent knew at a step and why, what it did not see, what changed since the step
    before, and what it wrote.
    """
    with open_as_owner(where) as owner:
        recordings, record = owner.recordings, _step(owner, step)
        try:
            compiled = recordings.compiled(record.step_id)
            knew, unseen = recordings.knew(record.step_id), recordings.unseen(record.step_id)
        except NotFound:
            compiled, knew, unseen = None, [], []
        try:
            changed = recordings.changed(record.step_id)
        except NotFound:
            changed = None
        written = [
            change
            for change in recordings.written(record.run_id)
            if change.step_id == record.step_id
        ]
    if as_json:
        print_json(
            {
                "knew": [item.dump() for item in knew],
                "unseen": [item.dump() for item in unseen],
                "changed": None if changed is None else changed.dump(),
                "written": [change.dump() for change in written],
            }
        )
        return
    nothing = Text("No context is kept that was compiled in this step.", style="dim")
    parts: list[RenderableType] = [nothing if compiled is None else views.decision_table(*compiled)]
    if changed is not None:
        parts.append(views.step_diff_view(changed))
    parts += [
        Text(f"wrote {change.event} {change.memory_id} by {change.by.get('user')}")
        for change in written
    ]
    print_view(Group(*parts))


def trace(
    step: StepId,
    text: Annotated[str, typer.Argument(help=help_of("trace", "text"))],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Say where words of a step's context came from, to the raw source."""
    with open_as_owner(where) as owner:
        origins = owner.recordings.trace(_step(owner, step).step_id, text)
    if as_json:
        print_json([origin.dump() for origin in origins])
        return
    for origin in origins:
        print_view(Text.assemble((views.short(origin.item_id), "cyan"), "  ", origin.quote))
        if origin.memory_id is not None:
            print_view(Text(f"  memory {origin.memory_id}", style="dim"))
        if origin.source_id is not None:
            place = (
                origin.source.uri or origin.source.title or origin.source.source_type
                if origin.source
                else "not yours to read"
            )
            print_view(Text(f"  source {origin.source_id} ({place})", style="dim"))
        if origin.raw is not None:
            print_view(Text(f"  {origin.raw}", style="green"))


def uses(
    memory: Annotated[str, typer.Argument(help="Id of a memory, or how it begins or ends.")],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """List the steps that recalled, saw, left out or wrote a memory."""
    with open_as_owner(where) as owner:
        memory_uses = owner.recordings.uses(id_of(memory))
        if not memory_uses and len(memory) < _WHOLE:
            # Of a memory that was erased its whole id is all there is to ask with.
            owner.inspect(memory)
    if as_json:
        print_json([use.dump() for use in memory_uses])
    elif not memory_uses:
        print_view(Text("No recorded step had to do with it.", style="dim"))
    else:
        print_view(views.step_table([use.step for use in memory_uses]))
        for use in memory_uses:
            print_view(
                Text(
                    f"{views.short(use.step.step_id)}  {', '.join(use.how).replace('_', ' ')}",
                    style="dim",
                )
            )


def tape(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of a run, or how it begins or ends.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write, such as tests/tapes/refund.json.")
    ],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Write the calls of a run as a tape: a test plays it to the agent, without a network."""
    with open_as_owner(where) as owner:
        written = owner.recordings.tape(recorded(owner, run).run_id)
    write_tape(written, out)
    kinds: list[str] = [call.kind for call in written.calls]
    counts = {kind.replace("_", " "): kinds.count(kind) for kind in ("model_call", "tool_call")}
    if as_json:
        calls = {name.replace(" ", "_"): count for name, count in counts.items()}
        print_json(
            {
                "file": str(out),
                "run_id": written.run_id,
                "calls": calls,
                "fidelity": written.fidelity,
            }
        )
        return
    summary = ", ".join(
        f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()
    )
    print_view(Text(f"✓ {out}: {summary} ({written.fidelity})", style="green"))


def keygen(
    out: Annotated[
        Path, typer.Argument(help="File for the private key; the public one is written beside it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make a key to sign bundles with. Keep the private one where the tally is not."""
    public = out.with_name(f"{out.name}.pub")
    if out.exists() or public.exists():
        raise InvalidInput(
            f"{out} or {public} is there already, and a key that is lost cannot be made again."
        )
    private_key, public_key = new_key()
    with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private_key)
    public.write_bytes(public_key)
    if as_json:
        print_json({"private_key": str(out), "public_key": str(public)})
        return
    print_view(Text(f"✓ {out} (keep it secret) and {public}", style="green"))


def _step(owner: BoundTally, fragment: str) -> StepRecord:
    record = recorded(owner, fragment)
    if isinstance(record, RunRecord):
        raise InvalidInput(
            f"{fragment} is a run. Name one of its steps; `tally show {fragment}` lists them."
        )
    return record


def _foil(run_id: str, text: str | None) -> Foil | None:
    if text is None:
        return None
    count, _, head = text.partition(":")
    if not count.isdigit() or not head:
        raise typer.BadParameter("Write the foil as COUNT:DIGEST, as `tally verify` prints it.")
    return Foil(run_id=run_id, count=int(count), head=head)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "verify": verify,
    "receipt": receipt,
    "export-receipt": export_receipt,
    "diff": diff,
    "why": why,
    "trace": trace,
    "uses": uses,
    "tape": tape,
    "keygen": keygen,
}
