"""Stored text at the edges: each reader has one encoder, which cannot fail, evaluates no markup and
takes time in proportion to the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import GROWING, MARKUP, UNSEEN, is_linear
from tests.integrations.served import ROOT, Served, served
from tests.terminals import invoke

from tallystick import Actor, Tally
from tallystick.errors import ApprovalRequired
from tallystick.records import ContextItem
from tallystick.records.escaping import as_field, as_item, as_name, tag, visible
from tallystick.records.times import LAST_MOMENT, moment_text
from tallystick_cli.views.common import local_time
from tallystick_server.dashboard.rendering import clock, day, iso

from .permission_matrix import ASKING_DEPLOYS

OWNER = Actor(user="local", role="operator")
HOSTILE = {
    "halves, a null and what nobody sees": f"heron a\ud800b \udfff {UNSEEN} x",
    "markup of every kind": MARKUP,
}


@dataclass(frozen=True)
class Stored:
    """One hostile text in every place that takes one."""

    where: Path
    text: str
    field: str
    """The text as far as every field takes it."""
    memory_id: str
    run_id: str
    step_id: str
    approval_id: str


def store(tally: Tally, where: Path, text: str) -> Stored:
    bound = tally.bind(OWNER)
    # Fields but `content` refuse halves of characters and nulls.
    field = text.replace("\0", "").encode("utf-8", "ignore").decode()
    memory = bound.remember(text, speaker=field, tags=[field], subject=field)
    with bound.run(text, domain=text, goal=text, metadata={"note": text}) as run:
        with run.step("model_call", name=text, metadata={text: text}) as step:
            task = ContextItem(id="task", kind="user_msg", content=text)
            bound.compile([task, *bound.recall("heron")], budget=2_000)
            step.record("request", {"messages": [text]}, summary={"model": text})
            step.record("response", {"text": text}, summary={text: text})
        with pytest.raises(ApprovalRequired) as blocked:
            bound.check_tool_call("deploy", {"to": text})
    approval_id = blocked.value.approvals[0].id
    return Stored(where, text, field, memory.id, run.id, step.id, approval_id)


@pytest.fixture(scope="module", params=HOSTILE.values(), ids=list(HOSTILE))
def stored(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    where = tmp_path_factory.mktemp("hostile") / "tally"
    with Tally.open(where, owner=OWNER, background=False, rules=[ASKING_DEPLOYS]) as tally:
        return store(tally, where, request.param)


COMMANDS: dict[str, Callable[[Stored], list[str]]] = {
    "memories": lambda stored: ["memories"],
    "recall": lambda stored: ["recall", "heron"],
    "recall what it says": lambda stored: [
        "recall",
        stored.text.encode("utf-8", "replace").decode(),
    ],
    "inspect": lambda stored: ["inspect", stored.memory_id],
    "history": lambda stored: ["history", stored.memory_id],
    "explore": lambda stored: ["explore", "private:local"],
    "wake": lambda stored: ["wake"],
    "runs": lambda stored: ["runs"],
    "show a run": lambda stored: ["show", stored.run_id],
    "show a step": lambda stored: ["show", stored.step_id],
    "why": lambda stored: ["why", stored.step_id],
    "diff": lambda stored: ["diff", stored.step_id, stored.step_id],
    "receipt": lambda stored: ["receipt", stored.step_id],
    "uses": lambda stored: ["uses", stored.memory_id],
    "approvals": lambda stored: ["approvals"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_shows_every_text_and_is_steered_by_none(stored: Stored, command: str) -> None:
    arguments = [*COMMANDS[command](stored), "--tally", str(stored.where)]
    result = invoke(arguments, env={"COLUMNS": "200", "FORCE_COLOR": "1"})

    assert result.exit_code == 0, (result.output, result.exception)
    # The escapes of colours are the terminal's own.
    assert [mark for mark in UNSEEN if mark in result.output and mark != "\x1b"] == []
    assert "\x1b]" not in result.output
    if command in ("memories", "show a step") and "[bold" in stored.text:
        assert "[link=https://evil]" in result.output


@pytest.mark.parametrize("command", ["memories", "recall", "inspect", "runs", "show a step"])
def test_json_has_each_text_as_it_is_and_nothing_unseen(stored: Stored, command: str) -> None:
    arguments = [*COMMANDS[command](stored), "--tally", str(stored.where), "--json"]
    result = invoke(arguments)

    assert result.exit_code == 0, (result.output, result.exception)
    assert [mark for mark in UNSEEN if mark in result.output] == []
    if command == "memories":
        [memory] = json.loads(result.output)
        assert memory["content"] == stored.text
        assert memory["tags"] == [stored.field]


@pytest.fixture(scope="module", params=HOSTILE.values(), ids=list(HOSTILE))
def shown(
    request: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, Stored]]:
    folder = tmp_path_factory.mktemp("shown")
    with served(folder, rules=[ASKING_DEPLOYS]) as there:
        yield there, store(there.tally, folder, request.param)


PAGES = (
    "overview",
    "memory",
    "memories/{0.memory_id}",
    "memories/{0.memory_id}/modify",
    "diary",
    "runs",
    "runs/{0.run_id}",
    "runs/{0.run_id}/conversation",
    "steps/{0.step_id}",
    "steps/{0.step_id}/items/1",
    "steps/{0.step_id}/replay",
    "diff?before={0.step_id}&after={0.step_id}",
    "approvals",
    "approvals/{0.approval_id}",
    "reads",
    "spaces",
    "health",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_every_text(shown: tuple[Served, Stored], page: str) -> None:
    there, stored = shown
    http = there.http(there.token(OWNER, token_class="session"))
    response = http.get(f"/ui/{page.format(stored)}")

    assert response.status_code == 200
    text = response.content.decode("utf-8")
    assert "<script>alert" not in text
    if "modify" not in page:  # a field of a form has what it sends back
        assert [mark for mark in UNSEEN if mark in text and mark != "\n"] == []


@pytest.mark.parametrize("path", ["memories", "runs", "approvals", "memories/{0.memory_id}"])
def test_an_answer_over_http_has_each_text_as_it_is(
    shown: tuple[Served, Stored], path: str
) -> None:
    there, stored = shown
    response = there.http(there.token(OWNER)).get(f"/v1/{path.format(stored)}")

    assert response.status_code == 200
    response.content.decode("utf-8")
    assert json.dumps(stored.text)[1:-1] in json.dumps(response.json()["result"])


def test_a_form_that_changes_a_tag_leaves_a_text_that_no_form_can_send(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as there:
        memory = there.tally.bind(ROOT).remember("heron a\ud800b")
        http = there.http(there.token(ROOT, token_class="session"))
        page = http.get(f"/ui/memories/{memory.id}/modify").text
        key = page.split('name="form_key" value="')[1].split('"')[0]
        content = page.split('name="content" rows="5">\n')[1].split("</textarea>")[0]
        form = {"form_key": key, "reason": "r", "content": content, "tags": "bird"}
        preview = http.post(f"/ui/memories/{memory.id}/modify", data=form)

        assert preview.status_code == 200
        assert 'name="tags"' in preview.text
        assert 'name="content"' not in preview.text


def test_a_moment_that_no_calendar_has_is_shown_as_a_number() -> None:
    beyond = 2**62

    assert moment_text(0, "%Y-%m-%d") == "1970-01-01"
    for shows in (local_time, day, clock, iso, lambda at: moment_text(at, "%Y")):
        assert shows(beyond) == f"{beyond} µs"
        assert shows(LAST_MOMENT)
        assert shows(-beyond) == f"-{beyond} µs"


def test_what_a_script_needs_stays_as_it_is() -> None:
    for text in ("می‌خواهم", "👩‍👩‍👧", "שלום\u200f!", "Zeile\nzwei\tTab"):
        assert visible(text) == text
    assert visible("a\u200bb\u2028c\r\nd\re") == "a\\u200bb\\u2028c\nd\\u000de"
    assert tag("p", "a\ud800\u202eb", title="\ufeff") == ('<p title="\\ufeff">a\\ud800\\u202eb</p>')


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("encode", [as_item, as_field, as_name, visible])
def test_ten_times_the_text_takes_no_more_than_fifteen_times_the_work(
    name: str, encode: Callable[[str], str]
) -> None:
    def work(length: int) -> None:
        encode(GROWING[name] * (length // len(GROWING[name])) + "é")

    assert is_linear(work, 4_000)
