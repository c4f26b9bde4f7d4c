"""An architecture overview of this repository, made of its own documents and commits.

Every sentence is quoted from a page or a commit, with its source; no model is asked.

    python -m examples.overview
    python -m examples.overview --html overview.html
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.running import OPERATOR, check_receipts, example_options

from tallystick import Tally
from tallystick.tally import BoundTally
from tallystick_ingest import Ingest
from tallystick_synthesis import Synthesis
from tallystick_synthesis.markdown import page_of

ROOT = Path(__file__).parents[2]
PAGES = (
    *("design", "layers", "concepts", "memory", "recall", "compiler", "recorder", "receipts"),
    *("policy", "security", "forgetting", "jobs", "graph", "work", "server", "mcp"),
)
"""The pages that say how it is built and why."""
_COMMITS = 150
OUTLINE = (
    ("What it is for", "what the tally gives agents: memory, context and receipts, offline"),
    ("How it is laid out", "rooms, floors, packages and extensions of the house"),
    ("What is remembered", "what was said stays as a source; what was concluded points back"),
    ("How memory is found", "recall ranks candidates by signals from full text and vectors"),
    ("How a context is chosen", "the compiler chooses the best context within a budget"),
    ("How a run is recorded", "a run has steps with receipts in a chain that verify checks"),
    ("Who may see what", "policy decides every access by scope and actor"),
    ("How text is destroyed", "erasing destroys the text of a memory in every copy, with a proof"),
    ("Work in the background", "jobs do follow-up work with leases and retries"),
    ("Surfaces", "the server, MCP and the command line offer the operations"),
)


def commits() -> list[str]:
    """Return the subjects of the latest commits; none where there is no repository."""
    command = ["git", "-C", str(ROOT), "log", f"-{_COMMITS}", "--no-merges", "--format=%s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if len(line.split()) > 4]


def fill(bound: BoundTally) -> None:
    """Add the pages as documents, and the commits as episodes."""
    ingest = Ingest(bound)
    for name in ("README.md", *(f"docs/{page}.md" for page in PAGES)):
        ingest.add_document((ROOT / name).read_text(encoding="utf-8"), name=name)
    bound.remember_many([{"content": each, "kind": "episode"} for each in commits()], mode="raw")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the overview and print it; with `--html` write it as one page."""
    parser = example_options(__doc__)
    parser.add_argument("--html", help="a file to write the page to")
    options = parser.parse_args(arguments)
    with Tally.open(options.tally, owner=OPERATOR, background=False) as tally:
        bound = tally.bind()
        fill(bound)
        synthesis = Synthesis(bound)
        sections: list[dict[str, Any]] = [
            {"title": title, "query": query, "kinds": ["document"]} for title, query in OUTLINE
        ]
        sections.append({"title": "What changed lately", "kinds": ["episode"]})
        run = synthesis.plan(outline=sections, audience="engineers who read it first", depth=2)
        synthesis.sections(run.id)
        synthesis.draft(run.id)
        verdict = synthesis.verify(run.id).verification
        shown = synthesis.run(run.id, format="markdown")
        preview = synthesis.remember(run.id)
        synthesis.remember(run.id, mode="apply", confirm_token=preview.confirm_token)
        assert shown.markdown is not None
        assert verdict is not None
        if options.html:
            Path(options.html).write_text(page_of("Architecture overview", shown.markdown))
        print(shown.markdown)
        print(f"{verdict.verdict}: {verdict.quoted} of {verdict.sentences} sentences are quoted")
        print(check_receipts(tally))


if __name__ == "__main__":
    main()
