"""The coding agent does what a coding agent has to do, point by point, and its receipts say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from examples.anthropic_coding_agent import __main__ as anthropic_agent
from examples.anthropic_coding_agent.offline import offline_client
from examples.coding_agent import __main__ as coding_agent
from examples.coding_agent.agent import REQUEST
from examples.coding_agent.scripted import ScriptedChatModel
from examples.coding_agent.tools import RULES, TOOL_CLASSES, class_of_command
from examples.coding_agent.workspace import TestRun, Workspace, sample_workspace

from tallystick import Tally
from tallystick.errors import ApprovalRequired
from tallystick.records import CompiledContext, ReplayResult, StepRecord
from tallystick.tally import BoundTally
from tallystick_anthropic import MessagesProvider
from tallystick_work import Work


class Worked(NamedTuple):
    """What the agent left behind."""

    bound: BoundTally
    workspace: Workspace
    patch_steps: list[str]
    asked: list[dict[str, Any]]
    replayed: ReplayResult

    @property
    def steps(self) -> list[StepRecord]:
        return self.bound.recordings.steps(self.run_id)

    @property
    def run_id(self) -> str:
        return self.bound.recordings.step(self.patch_steps[0]).run_id

    def compiled(self, step_id: str) -> CompiledContext:
        return self.bound.recordings.compiled(step_id)[1]


@pytest.fixture(scope="module")
def worked() -> Iterator[Worked]:
    asked: list[dict[str, Any]] = []

    def decide(action: dict[str, Any]) -> dict[str, Any]:
        asked.append(action)
        return {"type": "approve"}

    with (
        sample_workspace() as workspace,
        Tally.open(
            ":memory:",
            owner=coding_agent.OWNER,
            rules=RULES,
            tool_classes=TOOL_CLASSES,
            background=False,
        ) as tally,
    ):
        agent = coding_agent.OWNER.model_copy(update={"agent": "coder"})
        bound = tally.bind(agent, scope=coding_agent.SCOPE)
        model = ScriptedChatModel()
        steps = coding_agent.change(
            bound, workspace, model, REQUEST, coding_agent.TIGHT, decide=decide
        )
        replayed = coding_agent.replay(bound, steps[0], model)
        yield Worked(bound, workspace, steps, asked, replayed)


def test_the_request_is_a_completed_task_and_a_second_session_starts_from_it(
    worked: Worked,
) -> None:
    [task] = Work(worked.bound).list()
    assert (task.text, task.status, task.assignees) == (REQUEST, "done", ("coder",))
    assert task.branch is not None
    assert task.commits == (worked.workspace.commit,)
    [episode] = worked.bound.memories(kinds=["episode"])

    first_text = coding_agent.start_session(worked.bound, "second")

    assert " ".join(episode.content.split())[:60] in " ".join(first_text.split())
    pack = worked.bound.wake(project="code")
    assert episode.id in {item.id for item in pack.items if item.chosen_as == "learned"}


def test_the_failing_test_passes_and_no_test_was_edited(worked: Worked) -> None:
    assert worked.workspace.run_tests().passed
    changed = [line for line in worked.workspace.diff().splitlines() if line.startswith("+++")]
    assert changed == ["+++ b/ledger/money.py"]


def test_repository_summary_and_tools_are_candidates_and_the_diff_once_there_is_one(
    worked: Worked,
) -> None:
    first, last = (
        {decision.item_id for decision in worked.compiled(step.id).decisions}
        for step in (worked.steps[0], [step for step in worked.steps if step.name == "think"][-1])
    )
    files = {f"file:{path}" for path in worked.workspace.files()}
    tools = {f"tool:{name}" for name in TOOL_CLASSES}

    assert {"repository", "rule:tests", "rule:api", *files, *tools} <= first
    assert "diff" not in first
    assert "diff" in last


def test_request_constraints_and_the_failing_output_are_in_and_each_item_has_a_reason(
    worked: Worked,
) -> None:
    compiled = worked.compiled(worked.patch_steps[0])
    reasons = {decision.item_id: decision.reason_code for decision in compiled.decisions}

    assert reasons["0:request"] == "required_latest_request"
    assert reasons["rule:tests"] == "required_constraint"
    assert reasons["2:result of run_tests"] == "required_tool_result"
    assert all(reasons.values())


def test_an_unrelated_file_is_out_with_its_reason_and_the_convention_is_in(worked: Worked) -> None:
    [step] = [
        step
        for step in worked.bound.recordings.steps(str(worked.replayed.run_id))
        if step.step_kind == "model_call"
    ]
    compiled = worked.compiled(step.id)

    assert compiled.decision("file:docs/history.md").reason_code == "below_relevance"
    assert compiled.decision("file:CONVENTIONS.md").decision == "include"


def test_sections_have_digests_and_instructions_stay_the_same_from_step_to_step(
    worked: Worked,
) -> None:
    thinking = [worked.compiled(step.id) for step in worked.steps if step.name == "think"]

    assert all(section.digest for compiled in thinking for section in compiled.sections)
    assert len({compiled.stable_prefix_hash for compiled in thinking}) == 1


def test_the_record_has_contexts_requests_answers_tools_checks_and_memories(
    worked: Worked,
) -> None:
    recorded = {
        entry.kind for step in worked.steps for entry in worked.bound.recordings.entries(step.id)
    }

    assert {
        "compile_request",
        "compiled",
        "request",
        "response",
        "tool_call",
        "tool_result",
        "policy_check",
        "approval",
        "memory_read",
        "memory_write",
    } <= recorded


def test_the_record_has_the_output_of_the_tests_the_diff_and_what_each_call_of_the_model_used(
    worked: Worked,
) -> None:
    entries = [entry for step in worked.steps for entry in worked.bound.recordings.entries(step.id)]
    results = [str(entry.payload) for entry in entries if entry.kind == "tool_result"]
    usage: list[Any] = [entry.summary["usage"] for entry in entries if entry.kind == "response"]

    assert any("1 failed" in text for text in results)
    assert any("4 passed" in text for text in results)
    assert any("+++ b/ledger/money.py" in text for text in results)
    assert all(each["input_tokens"] > each["output_tokens"] > 0 for each in usage)


def test_reading_and_testing_run_and_each_patch_waited_for_a_person(worked: Worked) -> None:
    assert [action["name"] for action in worked.asked] == ["apply_patch", "apply_patch"]


@pytest.mark.parametrize(
    ("command", "tool_class"),
    [
        ("git diff", "read_only"),
        ("ls ledger", "read_only"),
        ("git push", "destructive"),
        ("git diff --output=ledger/money.py", "destructive"),
        ("ls; rm -r ledger", "destructive"),
        ("lsof", "destructive"),
    ],
)
def test_what_is_not_known_to_read_destroys(command: str, tool_class: str) -> None:
    assert class_of_command({"command": command}) == tool_class


def test_a_command_that_destroys_is_not_run_without_a_person(worked: Worked) -> None:
    with pytest.raises(ApprovalRequired, match="ask-before-destroying"):
        worked.bound.check_tool_call("shell", {"command": "rm -r ledger"})


def test_the_state_of_the_workspace_is_remembered_with_the_run_as_its_source(
    worked: Worked,
) -> None:
    [summary] = worked.bound.memories(kinds=("summary",))
    source = worked.bound.source(summary.sources[0].source_id)

    assert "4 passed" in summary.content
    assert "ledger/money.py" in summary.content
    assert (source.uri, source.source_version) == (
        f"run:{worked.run_id}",
        worked.workspace.commit,
    )


def test_the_step_that_guessed_answers_rightly_with_more_context_and_both_are_recorded(
    worked: Worked,
) -> None:
    replayed = worked.replayed
    assert replayed.diff is not None
    assert "file:CONVENTIONS.md" in {change.item_id for change in replayed.diff.added}
    assert replayed.response_matches is False
    assert "half to even" in str(replayed.response)
    run = worked.bound.recordings.run(str(replayed.run_id))
    assert run.metadata["replay_of"] == {
        "run_id": worked.run_id,
        "step_id": worked.patch_steps[0],
    }


def test_the_receipts_of_work_and_replay_verify(worked: Worked) -> None:
    for run in worked.bound.recordings.runs():
        assert worked.bound.recordings.verify(run.id).ok


def test_a_patch_that_a_person_refuses_leaves_the_files_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the Messages API: the model reads the refusal and stops."""
    failing = TestRun(passed=False, output="1 failed, 3 passed")
    monkeypatch.setattr(Workspace, "run_tests", lambda workspace: failing)
    with (
        sample_workspace() as workspace,
        Tally.open(
            ":memory:",
            owner=anthropic_agent.OWNER,
            rules=RULES,
            tool_classes=TOOL_CLASSES,
            background=False,
        ) as tally,
    ):
        agent = anthropic_agent.OWNER.model_copy(update={"agent": "coder"})
        bound = tally.bind(agent, scope=anthropic_agent.SCOPE)
        provider = MessagesProvider("claude-sonnet-5", client=offline_client())
        with bound.run("coder") as run:
            last = anthropic_agent.work(
                bound, run, workspace, provider, "Mend it.", decide=lambda approval: False
            )
        assert last.startswith("I stop here: ")
        assert workspace.diff() == ""
        assert bound.recordings.verify(run.id).ok


def test_the_same_agent_mends_the_project_on_the_messages_api(
    capsys: pytest.CaptureFixture[str],
) -> None:
    anthropic_agent.main([])
    shown = capsys.readouterr().out

    assert "+    return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))" in shown
    assert "\n4 passed\n" in shown
    assert "receipts that verify: " in shown
