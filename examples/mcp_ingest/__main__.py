"""What another MCP server offers, as candidates of a context: read, chosen, recorded, verified.

It starts a server of a handbook, reads its resources through the bridge, and compiles the best of
them for a question. No model is asked and nothing leaves.

    python -m examples.mcp_ingest
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.running import OPERATOR, check_receipts, example_options
from mcp import Client, StdioServerParameters

from tallystick import ContextItem, Tally
from tallystick_mcp import Bridge

QUESTION = "When does the heron nest, and how close may a boat come?"
HANDBOOK = StdioServerParameters(
    command=sys.executable, args=[str(Path(__file__).with_name("handbook.py"))]
)


async def pages() -> list[ContextItem]:
    """Return the pages of the handbook, each with where it is from."""
    async with Client(HANDBOOK) as client:
        return await Bridge(client, "handbook of the reserve").items()


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile an answer's context from the handbook, and print the decision for each page."""
    options = example_options(__doc__).parse_args(arguments)
    items = asyncio.run(pages())
    question = ContextItem(id="question", kind="user_msg", content=QUESTION)
    with Tally.open(options.tally, owner=OPERATOR) as tally:
        guide = tally.bind()
        with guide.run("guide", goal=QUESTION) as run, run.step("model_call") as step:
            compiled = guide.compile([question, *items], budget=400, query=QUESTION)
            step.record("request", {"context": [item.id for item in compiled.selected_items]})
            step.record("response", {"text": "From March to June; a hundred metres."})
        print(QUESTION)
        by_id = {item.id: item for item in items}
        for decision in compiled.decisions:
            page = by_id.get(decision.item_id)
            if page is not None:
                uri = page.source_ref.uri
                print(f"  {decision.decision:8} {uri}  {decision.reason_code}")
        print(check_receipts(tally))


if __name__ == "__main__":
    main()
