"""Operations of somebody in charge: erase and prove it, purge, freeze, check, back up, export and
import.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tallystick.operations.operation import (
    Arguments,
    Confirmed,
    IdempotencyKey,
    MemoryId,
    NoArguments,
    OfMemory,
    Operation,
    Reason,
    RunId,
    Scopes,
)
from tallystick.records import (
    Backup,
    Erasure,
    Finding,
    Freezable,
    Proof,
    Purge,
    RebuiltIndex,
    Sizes,
    Transfer,
)

Applied = Annotated[Literal["preview", "apply"], Field(description="Only count it, or remove it.")]


class Erase(Confirmed):
    """Arguments of `erase`."""

    memory_ids: Annotated[tuple[str, ...], Field(description="Ids of memories.")]
    fragments: Annotated[
        tuple[str, ...],
        Field(description="Pieces of their text that names, ids or goals may hold; repeatable."),
    ] = ()
    reason: Reason


class EraseRecorded(Arguments):
    """Arguments of `erase_recorded`."""

    run_id: RunId
    step_id: Annotated[str | None, Field(description="One step; by default all of the run.")] = None
    reason: Reason
    mode: Annotated[
        Literal["preview", "apply"], Field(description="Only name the steps, or erase them.")
    ] = "preview"
    idempotency_key: IdempotencyKey = None


class ProveErased(Arguments):
    """Arguments of `prove_erased`."""

    memory_id: MemoryId
    text: Annotated[
        str | None, Field(description="The erased text, to search every byte for it.")
    ] = None


class PurgeArguments(Arguments):
    """Arguments of `purge`."""

    mode: Applied = "preview"
    idempotency_key: IdempotencyKey = None


Window = int | Literal["keep"]


class ChooseWindows(Arguments):
    """Arguments of `choose_windows`."""

    journal_days: Annotated[
        Window | None,
        Field(description="Days that journals and recorded runs are kept, or keep."),
    ] = None
    tombstones_days: Annotated[
        Window | None,
        Field(description="Days that the text of forgotten memories is kept, or keep."),
    ] = None
    done_jobs_days: Annotated[
        Window | None, Field(description="Days that finished jobs are kept, or keep.")
    ] = None
    dead_jobs_days: Annotated[
        Window | None, Field(description="Days that jobs that failed or died are kept, or keep.")
    ] = None
    idempotency_key: IdempotencyKey = None


class Doctor(Arguments):
    """Arguments of `doctor`."""

    repair: Annotated[bool, Field(description="Mend what can be mended.")] = False


class Freeze(Arguments):
    """Arguments of `freeze` and `thaw`."""

    reason: Reason
    what: Annotated[
        Freezable, Field(description="Every change of memory, or autonomous work alone.")
    ] = "mutations"
    idempotency_key: IdempotencyKey = None


class Export(Arguments):
    """Arguments of `export`."""

    folder: Annotated[str | None, Field(description="A new folder; a preview needs none.")] = None
    scopes: Scopes = None
    mode: Annotated[
        Literal["preview", "apply"], Field(description="Only count it, or write it.")
    ] = "apply"


class BackUp(Arguments):
    """Arguments of `backup`."""

    folder: Annotated[str, Field(description="A new folder.")]


class Import(Arguments):
    """Arguments of `import_from`."""

    folder: Annotated[str, Field(description="The folder of an export.")]
    idempotency_key: IdempotencyKey = None


_OPERATE = ("denied", "idempotency_mismatch")

OPERATIONS = (
    Operation(
        name="erase",
        title="Erase",
        description="Preview the destruction of memories' text in every copy, then do it with the "
        "token, with proof.",
        effect="operate",
        arguments=Erase,
        result=Erasure,
        errors=(
            *_OPERATE,
            "not_found",
            "invalid_input",
            "state_conflict",
            "storage_error",
            "rate_limited",
        ),
        verb="operator.erase",
        needs_preview=True,
    ),
    Operation(
        name="erase_recorded",
        title="Erase what was recorded",
        description="Name the steps of which something recorded would be erased, then erase "
        "payloads, names, metadata and summaries; receipts stay and verify.",
        effect="operate",
        arguments=EraseRecorded,
        result=list[str],
        errors=(*_OPERATE, "not_found", "invalid_input", "storage_error", "rate_limited"),
        verb="operator.erase_recorded",
    ),
    Operation(
        name="prove_unreachable",
        title="Prove that it is unreachable",
        description="Try every read path for a forgotten memory, and list the copies still kept.",
        effect="read",
        arguments=OfMemory,
        result=Proof,
        errors=("not_found", "state_conflict", "rate_limited"),
        verb="operator.prove_unreachable",
    ),
    Operation(
        name="prove_erased",
        title="Prove that it is erased",
        description="Search for what is left of an erased memory; with its text in every byte.",
        effect="operate",
        arguments=ProveErased,
        result=Proof,
        errors=("denied", "not_found"),
        verb="operator.prove_erased",
    ),
    Operation(
        name="purge",
        title="Purge",
        description="Count what is past its window, then remove it. Nothing within its window is "
        "removed.",
        effect="operate",
        arguments=PurgeArguments,
        result=Purge,
        errors=(*_OPERATE, "rate_limited"),
        verb="operator.purge",
    ),
    Operation(
        name="choose_windows",
        title="Choose what is kept how long",
        description="Choose after how many days journals, forgotten text and ended jobs go by "
        "themselves.",
        effect="operate",
        arguments=ChooseWindows,
        result=None,
        errors=(*_OPERATE, "invalid_input"),
        verb="operator.choose_windows",
    ),
    Operation(
        name="doctor",
        title="Doctor",
        description="Check chains, commitments, jobs, retention and the index.",
        effect="operate",
        arguments=Doctor,
        result=tuple[Finding, ...],
        errors=("denied",),
        verb="operator.doctor",
    ),
    Operation(
        name="sizes",
        title="Sizes",
        description="Count where the bytes of the tally are, by kind.",
        effect="operate",
        arguments=Arguments,
        result=Sizes,
        errors=("denied",),
        verb="operator.sizes",
    ),
    Operation(
        name="rebuild_index",
        title="Rebuild the index",
        description="Make Chroma anew from the database; return the number of vectors.",
        effect="operate",
        arguments=NoArguments,
        result=RebuiltIndex,
        errors=("denied", "storage_error"),
        verb="operator.rebuild_index",
    ),
    Operation(
        name="freeze",
        title="Freeze",
        description="Suspend every change of memory, by anybody, until it is thawed.",
        effect="operate",
        arguments=Freeze,
        result=None,
        errors=_OPERATE,
        verb="operator.freeze",
    ),
    Operation(
        name="thaw",
        title="Thaw",
        description="Allow changes of memory again.",
        effect="operate",
        arguments=Freeze,
        result=None,
        errors=_OPERATE,
        verb="operator.thaw",
    ),
    Operation(
        name="export",
        title="Export",
        description="Write scopes to a folder of JSON lines and blobs, each with its digest; or "
        "count what would be written.",
        effect="operate",
        arguments=Export,
        result=Transfer,
        errors=("denied", "invalid_input", "storage_error", "rate_limited"),
        verb="operator.export",
    ),
    Operation(
        name="backup",
        title="Backup",
        description="Write the whole tally as it is now to a new folder, while others read and "
        "write, with a manifest of digests.",
        effect="operate",
        arguments=BackUp,
        result=Backup,
        errors=("denied", "invalid_input", "storage_error", "rate_limited"),
        verb="operator.backup",
    ),
    Operation(
        name="import_from",
        title="Import",
        description="Import an export, into a new tally or beside what is there; digests are "
        "checked first.",
        effect="operate",
        arguments=Import,
        result=Transfer,
        errors=(*_OPERATE, "invalid_input", "state_conflict", "corrupt_tally"),
        verb="operator.import_from",
    ),
)
"""In the order in which surfaces list them."""
