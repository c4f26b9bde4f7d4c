"""What the researcher can do, and the rules: the web may be read, nothing is published by an agent,
and a summariser of low trust is given summaries alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallystick import PolicyRule, SourceRef
from tallystick.records import PolicyConditions
from tallystick.tally import BoundTally

CORPUS = Path(__file__).parent / "corpus"
WEB = {
    "https://archive.example/heron-bridge": (
        "Toll book of the Heron Bridge. First entry: 4 May 1933. The toll was two pence a cart."
    )
}
"""The web of the offline run: the address of each page, and its text."""

RULES = [
    PolicyRule(
        id="web-is-read",
        name="The web may be read",
        effect="allow",
        applies_to="tool_call",
        conditions=PolicyConditions(tool_class=("network", "read_only")),
    ),
    PolicyRule(
        id="no-production-writes",
        name="No agent writes to production",
        effect="deny",
        applies_to="tool_call",
        conditions=PolicyConditions(tool=("publish",), environment=("production",)),
    ),
    PolicyRule(
        id="summariser-sees-nothing",
        name="A summariser of low trust is given no memory",
        effect="deny",
        applies_to="memory",
        conditions=PolicyConditions(agent=("summariser",)),
    ),
    PolicyRule(
        id="summariser-sees-summaries",
        name="but for summaries",
        effect="allow",
        applies_to="memory",
        conditions=PolicyConditions(agent=("summariser",), tag=("summary",)),
        priority=1,
    ),
]
TOOL_CLASSES: dict[str, Any] = {
    "search": "read_only",
    "read_page": "network",
    "note": "read_only",
    "publish": "write",
}


def remember_corpus(bound: BoundTally) -> None:
    """Remember each file of the corpus as a document, with its address."""
    for file in sorted(CORPUS.glob("*.md")):
        source = SourceRef(source_type="file", uri=f"corpus/{file.name}", title=file.stem)
        bound.remember(file.read_text(encoding="utf-8"), kind="document", source=source)


def research_tools(bound: BoundTally) -> list[Callable[..., Any]]:
    """Return the tools of a researcher on this memory."""

    def search(query: str) -> list[dict[str, str]]:
        """Search the documents; return their ids, addresses and texts, best first."""
        hits = bound.recall(query, kinds=("document",), limit=2)
        return [
            {"id": hit.memory.id, "address": hit.sources[0].uri or "", "text": hit.content}
            for hit in hits
        ]

    def read_page(url: str) -> dict[str, str]:
        """Read a page of the web; it is a document from then on."""
        source = SourceRef(source_type="external_api", uri=url)
        stored = bound.remember(WEB[url], kind="document", source=source)
        return {"id": stored.id, "address": url, "text": WEB[url]}

    def note(claim: str, document: str, address: str, contradicts: str | None = None) -> str:
        """Note a claim with the id and the address of the document that states it, and the id of a
        note that it contradicts; return its id.
        """
        stored = bound.remember(
            claim,
            kind="claim",
            source=SourceRef(source_type="retrieval", uri=address),
            derived_from=[document],
            contradicts=[contradicts] if contradicts else [],
        )
        return stored.id

    def publish(report: str) -> str:
        """Publish a report on the production site."""
        raise RuntimeError("a rule denies this before it is called")

    return [search, read_page, note, publish]
