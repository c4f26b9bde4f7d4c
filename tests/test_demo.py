"""The demo plays to its end: the agent mends the project, its tape matches, and tampering is
caught.
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from tallystick.recorder import verify_bundle

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not (ROOT / "examples").is_dir(), reason="the source is out of reach here")
def test_the_demo_mends_plays_verifies_and_defends_what_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, because the second time its memory knows the answer already."""
    monkeypatch.setenv("CI", "true")  # pytest prints more on a build machine; the demo the same
    monkeypatch.syspath_prepend(str(ROOT))
    demo, tampering, workspaces = (
        import_module(f"examples.{name}")
        for name in ("golden_path.__main__", "golden_path.tampering", "coding_agent.workspace")
    )
    with demo.open_tally(tmp_path / "tally") as tally:
        for number in range(2):
            said = io.StringIO()
            with workspaces.sample_workspace() as workspace:
                playing = demo.Demo(
                    Console(file=said, width=80), tally, workspace, verbose=number == 1
                )
                playing.play()
            shown = said.getvalue()
            lines = " ".join(shown.split())
            assert "Tests before: 1 failed, 3 passed" in lines
            assert "Tests after: 4 passed" in lines
            assert "content 1.00 (chroma)" in lines
            assert "13 of 13 requests are the recorded ones" in lines
            assert "The record is whole" in lines
            assert lines.count("Caught: ") == 3
            assert "✓ ls ran: CONVENTIONS.md build" in lines
            assert "? rm -r build waits" in lines
            assert "✓ a person approved exactly this: rm -r build ran: done" in lines
            # The second time the denial of the first still stands, and nobody is asked.
            assert ("? other arguments are another call: rm -r ledger waits" in lines) == (
                number == 0
            )
            assert "Not the sources." in lines
            # Candidates are told by what they are and how they begin, and have their names.
            table = " ".join(shown.partition("What the model saw")[2].partition("╭")[0].split())
            assert "file file:ledger/statement.py" in table
            assert "message of the user 0:request" in table
            assert "It goes in" in table
            # Digests and what pytest prints are for those who ask.
            assert ("sha256:" in shown, "Traceback" in shown) == (number == 1, False)
            if number == 0:
                for name, picture in playing.pictures.items():
                    kept = (ROOT / "docs" / name).read_text(encoding="utf-8")
                    assert _words(picture) == _words(kept), (
                        f"{name} is stale: `make docs-refresh` draws it anew"
                    )

        bound = tally.bind(demo.OWNER, scope=demo.SCOPE)
        coding = [run for run in bound.recordings.runs() if run.agent_name.startswith("coder")]
        taped, recorded = coding[0], coding[1]
        assert (taped.agent_name, recorded.agent_name) == ("coder, on tape", "coder")
        thinking = [step for step in bound.recordings.steps(recorded.id) if step.name == "think"]
        _, compiled = bound.recordings.compiled(thinking[2].id)
        # The society's history is out because it has nothing to do with the failure, not for room.
        assert compiled.decision("file:docs/history.md").reason_code == "below_relevance"
        # The function that fails is in one file, and what it calls in another.
        for path in ("ledger/statement.py", "ledger/money.py"):
            assert compiled.decision(f"file:{path}").decision == "include"
        receipt, foil = (
            bound.recordings.export_receipt(recorded.id),
            bound.recordings.foil(recorded.id),
        )
        assert verify_bundle(receipt, foil=foil).ok
        step = bound.recordings.steps(recorded.id)[0].id
        reworded, failed, cut = (found for _, found in tampering.attempts(receipt, step, foil))
        assert {problem.problem for problem in reworded.problems} == {
            "its payload does not match its commitment"
        }
        assert {problem.where.partition("#")[0] for problem in failed.problems} == {
            f"run:{recorded.id}",
            f"step {step}",
        }
        assert [problem.problem for problem in cut.problems] == [
            "the foil you gave does not match what is stored"
        ]


def _words(picture: str) -> set[str]:
    """Return the words of a picture, without the ids, digests and numbers of one run; what fits a
    budget there, and so their order, depends a little on the length of paths.
    """
    text = " ".join(re.findall(r">([^<>]+)<", picture)).replace("&#160;", " ")
    return set(re.findall(r"(?<![\w.:])[A-Za-z][A-Za-z_/]{3,}(?![\w:])", text))
