"""Proposals as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.records import Proposal
from tallystick_cli.views.common import fact_table, local_time, one_line, plain_table, short


def proposal_table(proposals: Iterable[Proposal]) -> Table:
    """Return proposals, one in a row."""
    table = plain_table("id", "state", "why", "what", "kind", "says")
    for proposal in proposals:
        table.add_row(
            Text(short(proposal.id), style="cyan"),
            proposal.state,
            proposal.reason,
            proposal.action.lower(),
            proposal.kind,
            _words(proposal),
        )
    return table


def proposal_view(proposal: Proposal) -> RenderableType:
    """Return everything that a person needs to decide."""
    facts = fact_table()
    facts.add_row("proposal", Text(short(proposal.id), style="cyan"))
    facts.add_row("what", f"{proposal.action.lower()} {proposal.kind} in {proposal.scope}")
    facts.add_row("says", _words(proposal))
    if proposal.target is not None:
        facts.add_row("about", short(proposal.target))
    facts.add_row("why it waits", proposal.reason)
    facts.add_row("confidence", f"{proposal.confidence} of 100")
    facts.add_row("drawn from", ", ".join(map(short, proposal.derived_from)))
    facts.add_row("by", f"{proposal.provider} {proposal.prompt_version or ''}".strip())
    facts.add_row("when", local_time(proposal.created_at))
    if proposal.suggested_scope is not None:
        facts.add_row("suggested", proposal.suggested_scope)
    return facts


def _words(proposal: Proposal) -> Text:
    if proposal.content is None:
        return Text("(not shown)", style="dim")
    return Text(one_line(proposal.content.content))
