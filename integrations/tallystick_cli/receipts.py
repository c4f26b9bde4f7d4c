"""Commands about receipts: verify a run or a bundle, and write bundles, pages, tapes and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tallystick.errors import InvalidInput
from tallystick.recorder import is_bundle, verify_bundle, write_tape
from tallystick.recorder.bundle import bundle_in
from tallystick.recorder.signing import new_key
from tallystick.records import Verification, VerificationProblem
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.inputs import read_foil
from tallystick_cli.output import write_private
from tallystick_cli.session import open_as_owner, run_id_of
from tallystick_cli.views import runs as views
from tallystick_html import receipt_page, says_its_bundle

Run = Annotated[str, "Id of a run, or how it begins or ends."]
_UNMATCHED_PAGE = 3
"""The exit code for a page that does not match the record in it, which is whole."""
PrivateKey = Annotated[str | None, "Private key in PEM."]


@command(
    "verify",
    without=("run_id",),
    note="A bundle is checked without the tally. Exits with 1 when something differs, and with 3 "
    "when the record in a page is whole and the page around it does not match.",
    tally="place",
)
def verify(
    call: Call,
    run: Annotated[str, "Id of a run, or how it begins or ends; or a bundle."],
    /,
    foil: Annotated[str | None, "COUNT:DIGEST that you kept, to catch what was cut off."] = None,
    public_key: Annotated[str | None, "Of the one who signed the bundle."] = None,
) -> Answer:
    key, file = None if public_key is None else Path(public_key).read_bytes(), Path(run)
    if is_bundle(file):
        content = file.read_bytes()
        named = None if foil is None else read_foil(verify_bundle(content).run_id, foil)
        answer = verify_bundle(file, foil=named, public_key=key)
        agrees = bundle_in(content) == content or says_its_bundle(content)
        if not agrees:
            code = _UNMATCHED_PAGE if answer.ok else 1
            answer = _with_page(answer, agrees)
            return Answer(answer, views.verification_view(answer), ok=False, exit_code=code)
    elif file.is_file():
        raise InvalidInput(f"{run} is no bundle of a receipt, or a damaged one.")
    elif key is not None:
        raise InvalidInput(
            "--public-key checks the signature of a bundle; `tally export-receipt` makes one."
        )
    else:
        with open_as_owner(call.where) as owner:
            call.bound, run_id = owner, run_id_of(owner, run)
            answer = call.do(run_id=run_id, foil=None if foil is None else read_foil(run_id, foil))
    return Answer(answer, views.verification_view(answer), answer.ok)


def _with_page(answer: Verification, agrees: bool | None) -> Verification:
    """Return what a bundle came to, with what is wrong with the page around it: None where it
    cannot be told.
    """
    if agrees is None:
        unproven = "that the page says what the record in it says: another release made it"
        return answer.replace(cannot_prove=(*answer.cannot_prove, unproven))
    problem = VerificationProblem(where="page", problem="says something else than the record in it")
    return answer.replace(ok=False, problems=(*answer.problems, problem))


@command(view=views.receipt_table)
def receipt(
    call: Call,
    run: Run,
    /,
    html: Annotated[str | None, "File to write: one page that shows the run and holds it."] = None,
    sign: PrivateKey = None,
) -> Any:
    """Show the receipts of a run, or write it as one page that anybody can open and check."""
    if html is None and sign is not None:
        raise InvalidInput("--sign signs what a page holds: give --html FILE too.")
    run_id = run_id_of(call.owner, run)
    if html is None:
        return list(call.owner.recordings.receipts(run_id))
    bundle = _bundle(call, run_id, sign)
    return _write_bundle(html, receipt_page(bundle), bundle)


@command()
def export_receipt(
    call: Call,
    run: Run,
    /,
    out: Annotated[str | None, "File to write; by default RUN.receipt."] = None,
    sign: PrivateKey = None,
) -> Answer:
    """Write a run as one file that `tally verify FILE` checks without the tally."""
    run_id = run_id_of(call.owner, run)
    bundle = _bundle(call, run_id, sign)
    return _write_bundle(out or f"{run_id[-8:]}.receipt", bundle, bundle)


def _bundle(call: Call, run_id: str, sign: str | None) -> bytes:
    key = None if sign is None else Path(sign).read_bytes()
    return call.owner.recordings.export_receipt(run_id, key=key)


def _write_bundle(file: str, content: bytes, bundle: bytes) -> Answer:
    write_private(file, content)
    foil = verify_bundle(bundle).foil
    line = f"✓ {file} ({len(content):,} bytes){', signed' if foil.signature else ''}"
    value = {"file": file, "bytes": len(content), "foil": foil}
    return Answer(value, [line, f"  foil: {foil.count}:{foil.head}"])


@command()
def tape(
    call: Call, run: Run, /, out: Annotated[str, "File to write, such as tests/tapes/refund.json."]
) -> Answer:
    """Write the calls of a run as a tape: a test plays it to the agent, without a network."""
    written = call.owner.recordings.tape(run_id_of(call.owner, run))
    write_tape(written, out)
    kinds: list[str] = [each.kind for each in written.calls]
    calls = {kind: kinds.count(kind) for kind in ("model_call", "tool_call")}
    counts = [
        f"{count} {kind.replace('_', ' ')}{'' if count == 1 else 's'}"
        for kind, count in calls.items()
    ]
    fields = {"run_id": written.run_id, "calls": calls, "fidelity": written.fidelity}
    line = f"✓ {out}: {', '.join(counts)} ({written.fidelity})"
    return Answer({"file": out, **fields}, line)


@command(tally="none")
def keygen(
    call: Call,
    out: Annotated[str, "File for the private key; the public one is written beside it."],
    /,
) -> Answer:
    """Make a key to sign bundles with. Keep the private one where the tally is not."""
    public = Path(f"{out}.pub")
    if Path(out).exists() or public.exists():
        raise InvalidInput(
            f"{out} or {public} is there already, and a key that is lost cannot be made again."
        )
    private_key, public_key = new_key()
    write_private(out, private_key, is_new=True)
    public.write_bytes(public_key)
    keys = {"private_key": out, "public_key": str(public)}
    return Answer(keys, f"✓ {out} (keep it secret) and {public}")
