"""View of a verification: the result for stock and foil, and its limits."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from tallystick.records import (
    Verification,
)
from tallystick_cli.views.common import (
    short,
)


def verification_view(verification: Verification) -> RenderableType:
    """Return the result for stock and foil, the checks, and the limits of the proof."""
    ok = verification.ok
    lines: list[RenderableType] = [
        Text(_verdict(verification), style="bold green" if ok else "bold red"),
        Text(
            f"{verification.receipts} receipts, {verification.payloads_checked} payloads checked, "
            f"{verification.payloads_absent} not kept or erased"
            + _threads(verification.threads_checked)
        ),
        Text(f"foil: {verification.foil.count}:{verification.foil.head}", style="cyan"),
    ]
    lines += [
        Text(f"✗ {problem.where}: {problem.problem}", style="red")
        for problem in verification.problems
    ]
    if verification.purged is not None:
        gone = verification.purged
        went = (
            f"{gone.steps} steps, {gone.payloads} payloads and {gone.entries} entries of the chain"
        )
        lines.append(
            Text(f"! past its window: {went} went; their count and head stand", style="yellow")
        )
    if verification.texts_erased:
        count = len(verification.texts_erased)
        lines.append(Text(f"! the texts of {count} entries were erased", style="yellow"))
    for where, missed in verification.gaps.items():
        reasons = ", ".join(f"{count} {reason}" for reason, count in missed.items())
        lines.append(
            Text(f"! {where}: not everything could be recorded ({reasons})", style="yellow")
        )
    if verification.signature_ok:
        lines.append(Text(f"✓ signed by {verification.foil.signed_by}", style="green"))
    lines.append(Text("Cannot prove " + "; ".join(verification.cannot_prove) + ".", style="dim"))
    lines.append(
        Text("Not covered by the chain: " + ", ".join(verification.not_covered) + ".", style="dim")
    )
    return Panel(
        Group(*lines),
        title=f"Verify run {short(verification.run_id)}",
        title_align="left",
        border_style="green" if ok else "red",
    )


def _threads(count: int) -> str:
    return f", {count} checkpoint thread{'' if count == 1 else 's'}" if count else ""


def _verdict(verification: Verification) -> str:
    if not verification.ok:
        return "✗ does not match"
    return (
        "✓ stock and foil match"
        if verification.foil_matches
        else "✓ the chain holds (no foil was given)"
    )
