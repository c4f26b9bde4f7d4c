"""Words for people: what codes of decisions, steps and states mean."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.records import CompilationDecision

DECISIONS: Mapping[str, str] = {
    "include": "in",
    "compress": "shortened",
    "redact": "redacted",
    "exclude": "left out",
}

REASONS: Mapping[str, str] = {
    "required_latest_request": "the latest request always goes in",
    "required_constraint": "a hard constraint always goes in",
    "required_policy": "policy requires it",
    "required_tool_result": "an open tool result always goes in",
    "required_pinned": "pinned",
    "required_system": "instructions and tools always go in",
    "dependency_of_included": "needed by",
    "tool_pair_of_included": "goes with",
    "selected_by_score": "chosen by its score",
    "compressed_extractive": "shortened to its best sentences, to fit",
    "compressed_structural": "shortened to its outline, to fit",
    "compressed_summary": "a summary stands in its place",
    "policy_redacted": "policy redacted it",
    "policy_denied": "policy keeps it out",
    "policy_requires_approval": "waits for an approval",
    "duplicate": "says the same as",
    "conflict_loser": "contradicted by",
    "superseded": "replaced by",
    "expired": "its time is over",
    "stale": "too old to be trusted",
    "empty": "empty",
    "below_relevance": "does not answer this request",
    "over_budget": "did not fit the budget",
    "compacted": "left the history, to make room",
    "class_budget": "its kind had used its share of the budget",
    "dependency_missing": "needs something absent:",
    "dependency_excluded": "needs something left out:",
    "tool_pair_excluded": "left with",
    "unpaired_tool_result": "a tool result without its call",
}
"""The reason of a decision, before the name of the item to which it points, if it does."""

OTHERWISE: Mapping[str, str] = {
    "policy_denied": "It goes in where the rule that keeps it out does not hold.",
    "policy_requires_approval": "It goes in once a person has approved it.",
    "duplicate": "It goes in where {related} does not.",
    "conflict_loser": "It goes in once {related} is withdrawn, or the two no longer disagree.",
    "superseded": "It goes in once {related} is forgotten.",
    "expired": "It goes in where its time is not over.",
    "stale": "It goes in where it was confirmed or changed more lately.",
    "empty": "It goes in once it says something.",
    "below_relevance": "It goes in for a request that shares words or meaning with it.",
    "over_budget": "It needs {tokens} tokens and {free} were free: {budget} would have held it.",
    "compacted": "A larger budget, or a larger share of it for the history, would have kept it.",
    "class_budget": "A larger share for its kind would have held its {tokens} tokens.",
    "dependency_missing": "It goes in together with what it needs.",
    "dependency_excluded": "It goes in where {related} does.",
    "tool_pair_excluded": "It goes in where {related} does.",
    "unpaired_tool_result": "It goes in behind the call that it answers.",
}
"""What would have had to be different for a candidate that was left out, by the reason."""

ITEMS: Mapping[str, str] = {
    "system": "instructions",
    "policy": "policy",
    "user_msg": "message of the user",
    "assistant_msg": "answer",
    "task": "task",
    "constraint": "constraint",
    "plan": "plan",
    "memory": "memory",
    "retrieval_doc": "document",
    "tool_schema": "tool",
    "tool_result": "tool result",
    "artifact": "artifact",
    "file": "file",
    "code_diff": "diff",
    "summary": "summary",
    "handoff": "handover",
    "working": "working memory",
    "other": "item",
}
"""What a candidate is."""

KINDS: Mapping[str, str] = {
    "model_call": "model call",
    "tool_call": "tool call",
    "memory_write": "memory write",
    "memory_read": "memory read",
    "policy_check": "policy check",
    "human_approval": "approval",
    "compile": "compile",
    "retrieval": "retrieval",
    "event": "event",
    "other": "other",
}

STATES: Mapping[str, str] = {
    "active": "active",
    "superseded": "replaced",
    "duplicate": "duplicate",
    "redacted": "redacted",
    "hidden": "hidden",
    "deleted": "forgotten",
    "erased": "erased",
}

CLASSES: Mapping[str, str] = {
    "constraints_and_request": "request and constraints",
    "policy": "instructions",
    "task_and_tools": "task and tools",
    "working_memory": "working memory",
    "retrieval": "memory and files",
    "summaries": "summaries",
}
"""The classes of a budget, in the order in which a page shows them."""

IMPACTS: Mapping[str, str] = {
    "leaves_recall": "it leaves recall",
    "returns": "it comes back to recall",
    "history": "recall shows it as past",
    "below_replacement": "recall shows its replacement, and it as past",
    "under_canonical": "recall shows the other one in its place",
    "metadata_only": "its text stays in recall, a fact about it changes",
    "field_redacted": "recall shows the replacement in place of the field",
    "local_only": "recall shows it here, and no model elsewhere gets it",
    "unchanged": "recall stays as it is",
}
"""What a correction does to recall."""

LINKS: Mapping[tuple[str, str], str] = {
    ("SUPERSEDES", "from"): "replaced by",
    ("SUPERSEDES", "to"): "replaces",
    ("DUPLICATE_OF", "to"): "repeats",
    ("DUPLICATE_OF", "from"): "repeated by",
    ("DERIVED_FROM", "to"): "concluded from",
    ("DERIVED_FROM", "from"): "used by",
    ("SHARES", "to"): "shared from",
    ("SHARES", "from"): "shared as",
    ("DEPENDS_ON", "to"): "depends on",
    ("DEPENDS_ON", "from"): "needed by",
    ("CONTRADICTS", "to"): "contradicts",
    ("CONTRADICTS", "from"): "contradicted by",
    ("REFERENCES", "to"): "points to",
    ("REFERENCES", "from"): "pointed to by",
    ("MENTIONS", "to"): "mentions",
    ("MENTIONS", "from"): "mentioned by",
}

ACTIONS: Mapping[str, str] = {
    "ADD": "add",
    "UPDATE": "replace",
    "END": "end",
    "CONTRADICTS": "contradict",
    "NONE": "change nothing",
    "RELATE": "relate",
    "PROMOTE": "promote",
}
"""What a proposal would do."""

HAPPENED: Mapping[str, str] = {
    "memory.add": "captured",
    "memory.seen": "seen again",
    "memory.update": "changed",
    "memory.link": "linked",
    "memory.unlink": "unlinked",
    "graph.kept_apart": "kept apart",
    "memory.forget": "forgot",
    "memory.recover": "recovered",
    "memory.correct": "corrected",
    "memory.promote": "promoted",
    "memory.share": "shared",
    "memory.erase": "erased",
    "user.erase": "erased a user",
    "memory.none": "found nothing new in",
    "memory.imported": "imported memories of another product",
    "memory.reflected": "reflected",
    "working.set": "kept in working memory",
    "working.drop": "dropped from working memory",
    "proposal.made": "suggested",
    "proposal.accepted": "accepted",
    "proposal.edited": "accepted in other words",
    "proposal.deferred": "put off",
    "proposal.rejected": "rejected",
    "proposal.applied": "applied",
    "proposal.undone": "took back",
    "proposal.discarded": "discarded",
    "proposal.withdrawn": "withdrew",
    "approval.asked": "asked to be approved",
    "approval.granted": "approved",
    "approval.denied": "denied",
    "approval.revoked": "took back",
    "approval.used": "used an approval",
    "access.denied": "was refused",
    "call.denied": "was denied a call",
    "recording.read": "looked at a recording",
    "scope.export": "exported the scope",
    "proof.unreachable": "proved forgotten",
    "proof.erased": "proved erased",
    "space.make": "opened a space",
    "space.update": "changed who belongs",
}
"""What happened in a scope, by the event of the journal."""

EVENTS: Mapping[str, str] = {
    "ADD": "written",
    "SEEN": "seen again",
    "UPDATE": "changed",
    "FORGET": "forgotten",
    "RECOVER": "recovered",
    "CORRECT": "corrected",
    "PROMOTE": "promoted",
    "SHARE": "shared",
    "ERASE": "erased",
    "LINK": "linked",
    "UNLINK": "unlinked",
}

_PARTS: Mapping[str, str] = {
    "relevance": "relevance",
    "freshness": "fresh",
    "trust": "trust",
    "importance": "important",
    "dependency": "needed",
    "pin": "pinned",
    "staleness": "ageing",
    "risk": "sensitive",
}


def link(kind: str, direction: str) -> str:
    """Return what a link means, seen from a memory."""
    return LINKS.get((kind, direction), kind.lower().replace("_", " "))


def reason(decision: CompilationDecision) -> str:
    """Return why a candidate went in or not, in words."""
    return REASONS.get(decision.reason_code, decision.reason_code.replace("_", " "))


def score_parts(breakdown: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the parts of a score that count, the largest first: their names and numbers."""
    parts = [(name, value) for name, value in breakdown.items() if name != "total" and value]
    parts.sort(key=lambda part: -abs(part[1]))
    return [
        (_PARTS.get(name, name.replace("_", " ")), f"{value / 1_000_000:.2f}")
        for name, value in parts
    ]
