"""What another MCP server offers, as candidates of a context: read, chosen, recorded, verified.

`python -m examples.mcp_ingest` starts a server of a handbook, reads its resources through the
bridge, and compiles the best of them for a question. No model is asked and nothing leaves.
"""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters

from tallystick import ContextItem, Tally
from tallystick_mcp import Bridge

QUESTION = "When does the heron nest, and how close may a boat come?"
HANDBOOK = StdioServerParameters(
    command=sys.executable, args=["-m", "examples.mcp_ingest.handbook"]
)


async def pages() -> list[ContextItem]:
    """Return the pages of the handbook, each with where it is from."""
    async with Client(HANDBOOK) as client:
        return await Bridge(client, "handbook of the reserve").items()


def main() -> None:
    """Compile an answer's context from the handbook, and print the decision for each page."""
    items = asyncio.run(pages())
    asked = ContextItem(id="question", kind="user_msg", content=QUESTION)
    with Tally.open(":memory:", background=False) as tally:
        guide = tally.bind()
        with guide.run("guide", goal=QUESTION) as run, run.step("model_call") as step:
            compiled = guide.compile([asked, *items], budget=400, query=QUESTION)
            step.record("request", {"context": [item.id for item in compiled.selected_items]})
            step.record("response", {"text": "From March to June; a hundred metres."})
        print(QUESTION)
        by_id = {item.id: item for item in items}
        for decision in compiled.decisions:
            page = by_id.get(decision.item_id)
            if page is not None:
                uri = page.source_ref.uri
                print(f"  {decision.decision:8} {uri}  {decision.reason_code}")
        verified = guide.verify(run.id)
        print("The receipt holds." if verified.ok else verified.problems)


if __name__ == "__main__":
    main()
