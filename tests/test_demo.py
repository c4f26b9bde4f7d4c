"""The demo plays to its end: the agent mends the project, its tape matches, and tampering is
caught.
"""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from tallystick import Tally
from tallystick.recorder import verify_bundle
from tallystick.settings import Settings

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not (ROOT / "examples").is_dir(), reason="the source is out of reach here")
def test_the_demo_mends_plays_verifies_and_defends_what_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, because the second time its memory knows the answer already."""
    monkeypatch.syspath_prepend(str(ROOT))
    demo, rules, tampering, workspaces = (
        import_module(f"examples.golden_path.{name}")
        for name in ("__main__", "rules", "tampering", "workspace")
    )
    with Tally.open(
        tmp_path / "tally",
        owner=demo.OWNER,
        settings=Settings.read(vector_search="exact"),
        rules=rules.RULES,
        tool_classes=rules.TOOL_CLASSES,
    ) as tally:
        for play in range(2):
            said = io.StringIO()
            workspace = workspaces.Workspace()
            try:
                demo.play(Console(file=said, width=110), tally, workspace, model=None, svg=None)
            finally:
                workspace.close()
            shown = said.getvalue()
            assert "1 failed, 3 passed" in shown
            assert "4 passed" in shown
            assert "12 of 12 requests are the recorded ones (exact)" in shown
            assert "stock and foil match" in shown
            assert "✓ ls ran: CONVENTIONS.md build" in shown
            assert "? rm -r build waits" in shown
            assert "✓ a person approved exactly this: rm -r build ran: done" in shown
            # The second time the denial of the first still stands, and nobody is asked.
            assert ("? other arguments are another call: rm -r ledger waits" in shown) == (
                play == 0
            )
            assert "Not the sources." in shown

        bound = tally.bind(demo.OWNER, scope=demo.SCOPE)
        coding = [run for run in bound.runs() if run.agent_name.startswith("coder")]
        taped, recorded = coding[0], coding[1]
        assert (taped.agent_name, recorded.agent_name) == ("coder, on tape", "coder")
        receipt, foil = (
            bound.recordings.export_receipt(recorded.run_id),
            bound.recordings.foil(recorded.run_id),
        )
        assert verify_bundle(receipt, foil=foil).ok
        step = bound.recordings.steps(recorded.run_id)[0].step_id
        reworded, failed, cut = (found for _, found in tampering.attempts(receipt, step, foil))
        assert {problem.problem for problem in reworded.problems} == {
            "its payload does not match its commitment"
        }
        assert {problem.where.partition("#")[0] for problem in failed.problems} == {
            f"run:{recorded.run_id}",
            f"step {step}",
        }
        assert [problem.problem for problem in cut.problems] == [
            "the foil you gave does not match what is stored"
        ]
