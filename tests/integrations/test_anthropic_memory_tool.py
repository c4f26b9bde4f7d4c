"""Anthropic's memory tool on a tally: behind the SDK's own classes and its tool runner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool
from tests.integrations.provider_servers import Anthropics

from tallystick.errors import InvalidInput
from tallystick.kit import ToolQuestion
from tallystick.records import Actor, PolicyConditions, PolicyRule
from tallystick.records.framing import NOTICE
from tallystick.tally import Tally
from tallystick_anthropic import TallyAsyncMemoryTool, TallyMemoryTool

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", agent="claude", projects={"apollo"})
PREFERENCES = "/memories/preferences.md"


def unframed(answer: Any) -> str:
    """An answer without its frame."""
    head, mark, rest = str(answer).partition("<tallystick-context")
    if not mark:
        return head
    return head + rest.partition(f"{NOTICE}\n")[2].rpartition("\n</tallystick-context>")[0]


def answer_of(tool: Any, **command: Any) -> tuple[str, bool]:
    """The answer of a command, and whether it is an error."""
    try:
        return unframed(tool.call(command)), False
    except ToolError as error:
        return str(error.content), True


SESSION: list[dict[str, Any]] = [
    {"command": "create", "path": "/memories/notes/todo.xml", "file_text": "<a>\n\n<b>\n</a>\n"},
    {"command": "create", "path": "/memories/notes/todo.xml", "file_text": "x"},
    {"command": "view", "path": "/memories/notes/todo.xml"},
    {"command": "view", "path": "/memories/notes/todo.xml", "view_range": [2, 3]},
    {"command": "view", "path": "/memories/notes/todo.xml", "view_range": [3, -1]},
    {"command": "view", "path": "/memories/none.txt"},
    {"command": "str_replace", "path": "/memories/notes/todo.xml", "old_str": "b", "new_str": "c"},
    {"command": "str_replace", "path": "/memories/notes/todo.xml", "old_str": "zz", "new_str": ""},
    {"command": "str_replace", "path": "/memories/notes/todo.xml", "old_str": "a>", "new_str": ""},
    {"command": "str_replace", "path": "/memories/none.txt", "old_str": "a", "new_str": "b"},
    {"command": "str_replace", "path": "/memories/notes", "old_str": "a", "new_str": "b"},
    {
        "command": "insert",
        "path": "/memories/notes/todo.xml",
        "insert_line": 1,
        "insert_text": "new\n",
    },
    {"command": "insert", "path": "/memories/notes/todo.xml", "insert_line": 9, "insert_text": "x"},
    {"command": "insert", "path": "/memories/none.txt", "insert_line": 0, "insert_text": "x"},
    {"command": "view", "path": "/memories/notes/todo.xml"},
    {"command": "create", "path": "/memories/b.txt", "file_text": "no newline"},
    {"command": "view", "path": "/memories/b.txt"},
    {"command": "rename", "old_path": "/memories/b.txt", "new_path": "/memories/notes/todo.xml"},
    {"command": "rename", "old_path": "/memories/b.txt", "new_path": "/memories/c/d.txt"},
    {"command": "rename", "old_path": "/memories/b.txt", "new_path": "/memories/e.txt"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/e.txt"},
    {"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/old"},
    {"command": "view", "path": "/memories/old/todo.xml"},
    {"command": "delete", "path": "/memories"},
    {"command": "delete", "path": "/memories/old"},
    {"command": "delete", "path": "/memories/old"},
    {"command": "view", "path": "/etc/passwd"},
]


def test_files_answer_as_the_local_tool_of_the_sdk_does(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path))
    with open_tally() as tally:
        ours = TallyMemoryTool(tally.bind(ALICE))

        for command in SESSION:
            answered = answer_of(ours, **command)
            try:
                expected = answer_of(theirs, **command)
            except OSError:  # the oldest SDK moves its own root
                assert answered[1], command
            else:
                assert answered == expected, command


def test_the_tool_runner_works_with_memory_as_files(open_tally: OpenTally) -> None:
    server = Anthropics(
        Anthropics.answer(
            Anthropics.call("t1", "memory", command="view", path="/memories"),
            stop_reason="tool_use",
        ),
        Anthropics.answer(
            Anthropics.call("t2", "memory", command="view", path=PREFERENCES),
            Anthropics.call(
                "t3", "memory", command="create", path="/memories/user.md", file_text="# Ann\n"
            ),
            Anthropics.call("t4", "memory", command="view", path="/memories/../secret"),
            stop_reason="tool_use",
        ),
        Anthropics.answer(Anthropics.text("You drink tea.")),
    )
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember("I drink tea.", kind="preference")

        message = server.client.beta.messages.tool_runner(
            model="claude-sonnet-5",
            max_tokens=100,
            messages=[{"role": "user", "content": "What do I drink?"}],
            tools=[TallyMemoryTool(bound)],
        ).until_done()

        bodies = [each for each in server.requests if each["_path"].endswith("/messages")]
        assert message.content[0].type == "text"
        assert bodies[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
        [listing] = bodies[1]["messages"][-1]["content"]
        assert "/memories/preferences.md" in str(listing["content"])
        shown, created, refused = bodies[2]["messages"][-1]["content"]
        assert "I drink tea." in str(shown["content"])
        assert created["content"] == "File created successfully at: /memories/user.md"
        assert refused["is_error"]
        assert "steps out of its folder" in str(refused["content"])
        assert [memory.content for memory in bound.memories(kinds=["document"])] == [
            "user.md\n# Ann\n"
        ]


def test_the_asynchronous_tool_does_the_same(open_tally: OpenTally) -> None:
    server = Anthropics(
        Anthropics.answer(
            Anthropics.call("t1", "memory", command="create", path="/memories/a", file_text="x"),
            stop_reason="tool_use",
        ),
        Anthropics.answer(
            Anthropics.call("t2", "memory", command="create", path="/memories/a", file_text="x"),
            stop_reason="tool_use",
        ),
        Anthropics.answer(Anthropics.text("Done.")),
    )

    async def session(tally: Tally) -> None:
        client = anthropic.AsyncAnthropic(
            api_key="sk-ant-test",
            http_client=anthropic.DefaultAsyncHttpxClient(transport=server.transport),
            max_retries=0,
        )
        runner = client.beta.messages.tool_runner(
            model="claude-sonnet-5",
            max_tokens=100,
            messages=[{"role": "user", "content": "Take a note."}],
            tools=[TallyAsyncMemoryTool(tally.bind(ALICE))],
        )
        await runner.until_done()
        await client.close()

    with open_tally() as tally:
        asyncio.run(session(tally))
        results = [body["messages"][-1]["content"][0] for body in server.requests[1:]]

    assert [each["content"] for each in results] == [
        "File created successfully at: /memories/a",
        "File /memories/a already exists",
    ]
    assert [bool(each.get("is_error")) for each in results] == [False, True]


@pytest.mark.parametrize("command", ["str_replace", "delete"])
def test_a_change_of_a_memory_asks_a_person(open_tally: OpenTally, command: str) -> None:
    questions: list[ToolQuestion] = []
    call = {"command": command, "path": PREFERENCES}
    if command == "str_replace":
        call |= {"old_str": "tea", "new_str": "coffee"}
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        stored = bound.remember("I drink tea.", kind="preference").id

        def ask(question: ToolQuestion) -> bool | str:
            questions.append(question)
            return "not now" if len(questions) == 1 else True

        nobody = TallyMemoryTool(bound)
        asking = TallyMemoryTool(bound, ask=ask)

        refused = answer_of(nobody, **call)
        denied = answer_of(asking, **call)
        allowed = answer_of(asking, **call)

        tool = "memory_modify" if command == "str_replace" else "memory_forget"
        no_ask = "Nobody can be asked: the agent was given no `ask`."
        assert refused == (f"{tool} was not done. {no_ask}", True)
        assert denied == (f"{tool} was not done. not now", True)
        assert not allowed[1]
        assert [(each.tool, each.arguments["memory_id"]) for each in questions] == [
            (tool, stored)
        ] * 2
        assert len(bound.history(stored)) == 2


def test_a_rule_over_the_memory_tools_holds_for_lines_and_files(open_tally: OpenTally) -> None:
    rules = [
        PolicyRule.load(
            {
                "id": "ask-before-forgetting",
                "name": "ask-before-forgetting",
                "applies_to": "tool_call",
                "effect": "require_approval",
                "conditions": {"tool": ["memory_forget"]},
            }
        ),
        PolicyRule.load(
            {
                "id": "no-plans",
                "name": "no-plans",
                "applies_to": "tool_call",
                "effect": "deny",
                "conditions": {"tool": ["memory_modify"]},
            }
        ),
    ]
    with open_tally(rules=rules) as tally:
        bound = tally.bind(ALICE)
        stored = bound.remember("I drink tea.", kind="preference").id
        tool = TallyMemoryTool(bound, approval="elsewhere")
        person = tally.bind(Actor(user="alice"))
        [line, _] = answer_of(tool, command="view", path=PREFERENCES)[0].split("\n")[1:]
        removal = {
            "command": "str_replace",
            "path": PREFERENCES,
            "old_str": line.partition("\t")[2] + "\n",
            "new_str": "",
        }

        waits = answer_of(tool, **removal)
        edited = answer_of(
            tool, command="str_replace", path=PREFERENCES, old_str="tea", new_str="x"
        )
        created = answer_of(tool, command="create", path="/memories/a.txt", file_text="x")
        inserted = answer_of(
            tool, command="insert", path="/memories/a.txt", insert_line=0, insert_text="x"
        )
        [approval] = person.approvals.list()
        person.approvals.approve(approval.id, reason="it may go")
        gone = answer_of(tool, **removal)

        assert waits[1]
        assert "approval" in waits[0]
        assert approval.id in waits[0]
        assert edited[1]
        assert "no-plans" in edited[0]
        assert created == ("File created successfully at: /memories/a.txt", False)
        assert inserted[1]
        assert "no-plans" in inserted[0]
        assert not gone[1], gone
        assert bound.history(stored)[-1].event == "FORGET"


def test_what_removes_many_lines_waits_for_all_approvals_at_once(open_tally: OpenTally) -> None:
    rule = PolicyRule(
        id="ask-before-forgetting",
        name="Ask before forgetting",
        effect="require_approval",
        applies_to="tool_call",
        conditions=PolicyConditions(tool=("memory_forget",)),
    )
    with open_tally(rules=[rule]) as tally:
        bound = tally.bind(ALICE)
        bound.remember("I drink tea.", kind="preference")
        bound.remember("I like dogs.", kind="preference")
        person = tally.bind(Actor(user="alice"))
        tool = TallyMemoryTool(bound, approval="elsewhere")

        waits = answer_of(tool, command="delete", path=PREFERENCES)
        approvals = person.approvals.list()
        for approval in approvals:
            person.approvals.approve(approval.id, reason="it may go")
        gone = answer_of(tool, command="delete", path=PREFERENCES)

        assert waits[1]
        assert len(approvals) == 2
        assert all(approval.id in waits[0] for approval in approvals)
        assert gone == (f"Successfully deleted {PREFERENCES}", False)
        assert bound.memories() == []


def test_a_rule_over_the_tool_itself_holds(open_tally: OpenTally) -> None:
    rule = PolicyRule.load(
        {
            "id": "no-files",
            "name": "no-files",
            "applies_to": "tool_call",
            "effect": "deny",
            "conditions": {"tool": ["memory"]},
        }
    )
    with open_tally(rules=[rule]) as tally:
        tool = TallyMemoryTool(tally.bind(ALICE))

        text, is_error = answer_of(tool, command="view", path="/memories")

        assert is_error
        assert "no-files" in text


def test_an_edit_shows_nothing_that_a_rule_lets_nobody_read(open_tally: OpenTally) -> None:
    conditions = {"tool": ["memory_list", "memory_get"]}
    rule = PolicyRule.load(
        {
            "id": "no-reading",
            "name": "no-reading",
            "applies_to": "tool_call",
            "effect": "deny",
            "conditions": conditions,
        }
    )
    with open_tally(rules=[rule]) as tally:
        bound = tally.bind(ALICE)
        bound.remember("The vault is behind the picture.", kind="preference")
        bound.remember("Tea is fine.", kind="preference")
        tool = TallyMemoryTool(bound, approval="elsewhere")
        tool.call({"command": "create", "path": "/memories/a.txt", "file_text": "tea\nvault\n"})
        for path in (PREFERENCES, "/memories/a.txt"):
            edit = {"command": "str_replace", "path": path, "old_str": "ea", "new_str": "in"}
            said = (
                "The memory file has been edited. It is not shown: a rule keeps it from being read."
            )
            assert answer_of(tool, **edit) == (said, False)


def test_half_a_character_in_a_file_leaves_every_answer_sendable(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tool = TallyMemoryTool(tally.bind(ALICE), approval="elsewhere")
        file = "/memories/a.txt"
        commands: list[dict[str, Any]] = [
            {"command": "create", "path": file, "file_text": "a \ud800 b"},
            {"command": "view", "path": file},
            {"command": "str_replace", "path": file, "old_str": "\udfff", "new_str": "c"},
            {"command": "str_replace", "path": file, "old_str": "b", "new_str": "\ud800c"},
            {"command": "create", "path": PREFERENCES, "file_text": "- tea \ud800"},
            {"command": "view", "path": PREFERENCES},
        ]
        assert all(answer_of(tool, **command)[0].encode() for command in commands)


def test_a_command_in_a_run_is_a_step_of_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tool = TallyMemoryTool(bound)
        with bound.run("writer") as run:
            tool.call({"command": "create", "path": "/memories/a.txt", "file_text": "x"})
            with pytest.raises(ToolError):
                tool.call({"command": "delete", "path": "/memories/b.txt"})

        steps = bound.recordings.steps(run.id)
        assert [(step.step_kind, step.name, step.status) for step in steps] == [
            ("tool_call", "memory", "completed"),
            ("tool_call", "memory", "failed"),
        ]
        [memory] = bound.memories()
        assert bound.history(memory.id)[0].correlation_id == steps[0].id


def test_what_a_file_changed_meanwhile_says(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        stored = bound.remember("I drink tea.", kind="preference").id
        tool = TallyMemoryTool(bound, approval="elsewhere")
        tool.call({"command": "view", "path": PREFERENCES})
        bound.modify(stored, content="I drink tea at six.", reason="r")

        text, is_error = answer_of(
            tool, command="str_replace", path=PREFERENCES, old_str="tea", new_str="coffee"
        )

        assert is_error
        assert text.startswith("Nothing was changed: the file was changed meanwhile.")
        assert bound.get(stored).content == "I drink tea at six."


@pytest.mark.parametrize(
    "command",
    [
        {"command": "view"},
        {"command": "create", "path": "/memories/a"},
        {"command": "create", "path": "/memories/a", "file_text": 7},
        {"command": "insert", "path": "/memories/a", "insert_line": "0", "insert_text": "x"},
        {"command": "view", "path": "/memories", "view_range": [1]},
        {"command": "view", "path": ["/memories"]},
    ],
    ids=str,
)
def test_a_command_that_lacks_an_argument_is_answered(
    open_sqlite: OpenTally, command: dict[str, Any]
) -> None:
    with open_sqlite() as tally:
        text, is_error = answer_of(TallyMemoryTool(tally.bind(ALICE)), **command)

        assert is_error
        assert any(words in text for words in ("Field required", "takes a", "valid", "not exist"))


def test_options_that_are_none_are_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput):
        TallyMemoryTool(tally, approval="always")  # type: ignore[arg-type]
