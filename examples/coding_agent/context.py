"""What the model of a coding agent may see: the candidates, from which each compile chooses."""

from __future__ import annotations

from examples.coding_agent.workspace import Workspace

from tallystick import ContextItem, SourceRef
from tallystick.recorder import Run
from tallystick.records import Remembered
from tallystick.tally import BoundTally, Candidate

SYSTEM = (
    "You are a careful engineer. You work with tools, in small steps, and follow the "
    "project's conventions."
)
RULES_OF_WORK = {
    "rule:tests": "Tests must not be edited.",
    "rule:api": "Public names and signatures stay.",
}


def candidates(
    bound: BoundTally, workspace: Workspace, request: str, *, known_at: int
) -> list[Candidate]:
    """Return what the next call of the model may need: constraints, a summary of the repository,
    the current diff, every file, and what was remembered until `known_at`.
    """
    items: list[Candidate] = [
        ContextItem(id=name, kind="constraint", content=text, tags={"hard"}, trust_score=100)
        for name, text in RULES_OF_WORK.items()
    ]
    items.append(_from_file("repository", "summary", workspace.summary(), workspace.root.name))
    if diff := workspace.diff():
        items.append(_from_file("diff", "code_diff", diff, "git diff"))
    for path in workspace.files():
        text = f"# {path}\n{workspace.read(path)}"
        items.append(_from_file(f"file:{path}", "file", text, path))
    return [*items, *bound.recall(f"{request} conventions", limit=3, until=known_at)]


def remember_workspace(
    bound: BoundTally, workspace: Workspace, run: Run, *, request: str
) -> Remembered:
    """Remember the state in which a run left the workspace, with the run as its source."""
    tests = workspace.run_tests()
    changed = [line[6:] for line in workspace.diff().splitlines() if line.startswith("+++ b/")]
    text = (
        f"{request} In {workspace.root.name} at {workspace.commit}, with changes in "
        f"{', '.join(changed) or 'no file'}: {tests.summary.partition(' in ')[0]}."
    )
    source = SourceRef(source_type="app_state", uri=f"run:{run.id}", version=workspace.commit)
    return bound.remember(text, kind="summary", tags=["workspace"], source=source)


def _from_file(item_id: str, kind: str, text: str, uri: str) -> ContextItem:
    return ContextItem.load(
        {
            "id": item_id,
            "kind": kind,
            "content": text,
            "trust_score": 60,
            "source_ref": SourceRef(source_type="file", uri=uri),
        }
    )
