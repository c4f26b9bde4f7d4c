"""Pages of reviews: what extraction and reflection suggest, and what a person decides about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from starlette.responses import Response

from tallystick.errors import Denied, InvalidInput
from tallystick.records import Proposal, ProposalState, Reviewed
from tallystick_server.dashboard.overview import readable
from tallystick_server.dashboard.rendering import sendable
from tallystick_server.dashboard.visits import Visit, form_page, page, reason_of

_LISTED = 100
_STATES: tuple[str, ...] = get_args(ProposalState)
_WAITING = ("pending", "deferred")
_DECISIONS: Mapping[str, str] = {
    "accept": "accepted",
    "edit": "accepted",
    "defer": "deferred",
    "reject": "rejected",
    "undo": "undone",
}
"""What a person decides, and the sentence that says so afterwards."""


def _reviews(visit: Visit) -> Response:
    """What waits for a person, or was decided, in every scope of the caller."""
    state = visit.text("state") or "waiting"
    if state not in ("waiting", *_STATES):
        raise InvalidInput(f"state: a proposal is waiting, {', '.join(_STATES)}.", argument="state")
    states = _WAITING if state == "waiting" else (state,)
    waiting: list[Proposal] = []
    for scope in readable(visit):
        try:
            waiting += visit.call("reviews", at=scope, states=states, limit=_LISTED)
        except Denied:  # the caller's home may be closed to it, as by a token for other scopes
            continue
    oldest = sorted(waiting, key=lambda each: each.created_at)
    return visit.page("reviews.html", proposals=oldest[:_LISTED], state=state, states=_STATES)


def _proposal(visit: Visit) -> Response:
    reviewed: Reviewed = visit.call("proposal", proposal_id=visit.path("proposal_id"))
    return visit.page("review.html", proposal=reviewed.proposal, history=reviewed.history)


def _decide(visit: Visit) -> Response:
    """Decide about one proposal; with other words than its own it is edited."""
    decision = visit.form.get("decision", "")
    if decision not in ("accept", "defer", "reject", "undo"):
        raise InvalidInput("A decision is accept, defer, reject or undo.")
    reviewed: Reviewed = visit.call("proposal", proposal_id=visit.path("proposal_id"))
    proposal = reviewed.proposal
    changes: dict[str, Any] = {}
    if decision == "accept" and proposal.content is not None:
        written = {"content": proposal.content.content, "kind": proposal.kind}
        changes = {
            name: visit.form[name].strip()
            for name, before in written.items()
            if visit.form.get(name, before).strip()
            not in (before.strip(), sendable(before).strip())
        }
    if changes:
        decision = "edit"
    visit.call(
        "review",
        at=proposal.scope,
        proposal_id=proposal.id,
        decision=decision,
        reason=reason_of(visit.form),
        changes=changes or None,
    )
    return visit.go(f"/reviews/{proposal.id}", note=_DECISIONS[decision])


ROUTES = [
    page("/reviews", _reviews),
    page("/reviews/{proposal_id}", _proposal),
    form_page("/reviews/{proposal_id}", _decide),
]
