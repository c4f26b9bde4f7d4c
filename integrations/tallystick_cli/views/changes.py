"""Views of changes to a memory: previews and results."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from tallystick.records import (
    Change,
    Correction,
    Crossing,
    Forgetting,
)
from tallystick_cli.views.common import (
    add_affected,
    fact_table,
    local_time,
    plain_table,
    preview_panel,
    short,
    state_text,
)

_IMPACT = {
    "leaves_recall": "it leaves recall",
    "returns": "it is recalled as before",
    "history": "it is recalled as what held once",
    "below_replacement": "it stands below its replacement",
    "under_canonical": "the other memory stands for it",
    "metadata_only": "the replacement stands in its place",
    "field_redacted": "the field shows its replacement",
    "local_only": "it is labelled, and goes to no distant embedder or reranker",
    "unchanged": "nothing changes",
}


def change_line(change: Change) -> Text:
    """Return the result of a change in one line."""
    if change.status == "unchanged":
        return Text(
            f"– nothing changed: {short(change.id)} is {change.state}, version {change.version}"
        )
    until = getattr(change, "recoverable_until", None)
    text = f"✓ {short(change.id)} is {change.state}, version {change.version}"
    return Text(text + (f"; recoverable until {local_time(until)}" if until else ""), style="green")


def correction_view(correction: Correction) -> RenderableType:
    """Return the preview of a correction, or its result."""
    if correction.result is not None:
        return change_line(correction.result)
    facts = fact_table()
    facts.add_row("memory", Text(correction.id, style="cyan"))
    facts.add_row("correction", Text(correction.correction, style="bold"))
    facts.add_row(
        "state", Text.assemble(state_text(correction.before), " → ", state_text(correction.after))
    )
    facts.add_row("recall", _IMPACT[correction.recall])
    if correction.other_id:
        facts.add_row("other memory", Text(correction.other_id, style="cyan"))
    add_affected(facts, correction.affected)
    until = (
        ""
        if correction.reversible_until is None
        else f" until {local_time(correction.reversible_until)}"
    )
    facts.add_row("reversible", f"yes{until}" if correction.reversible else "no")
    return preview_panel(facts)


def crossing_view(crossing: Crossing) -> RenderableType:
    """Return the preview of promoting or sharing, or its result."""
    if crossing.copy_id is not None:
        return Text(f"✓ {short(crossing.copy_id)} stands in {crossing.into}", style="green")
    facts = fact_table()
    facts.add_row("memory", Text(crossing.id, style="cyan"))
    facts.add_row("into", str(crossing.into))
    facts.add_row("readers there", ", ".join(crossing.readers) or "nobody yet")
    reach = crossing.reach
    facts.add_row(
        "what they see",
        f"{reach.visible} visible, {reach.redacted} redacted, {reach.hidden} hidden, "
        f"{reach.denied} denied",
    )
    facts.add_row("allowed by", ", ".join(decision.reason for decision in crossing.decisions))
    return preview_panel(facts)


def forgetting_view(forgetting: Forgetting) -> RenderableType:
    """Return the memories that a query forgets or would forget."""
    if forgetting.mode == "apply":
        return Text(f"✓ {len(forgetting.results)} memories forgotten", style="green")
    if not forgetting.matches:
        return Text("Nothing matches well enough.", style="dim")
    table = plain_table("id", "score", "what")
    for match in forgetting.matches:
        what = Text("forget") if match.action == "forget" else Text("keep: pinned", style="yellow")
        table.add_row(
            Text(short(match.id), style="cyan"),
            "" if match.score is None else f"{match.score:.2f}",
            what,
        )
    return preview_panel(table)
