"""Forty workflows of agents, from a task to what is learned, through the MCP tools alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.integrations.mcp_clients import connected, payload

from tallystick import Actor
from tallystick.tally import Tally
from tallystick_mcp import serve

MATTERS = (
    ("the parser", "Tabs are tokens of their own."),
    ("the invoice page", "Amounts are integer cents."),
    ("the nightly backup", "The disk sleeps at two."),
    ("the search index", "Umlauts are folded before they are compared."),
    ("the login form", "Sessions end when the password changes."),
)
"""What is worked on, and what is learned by it."""


class Agent:
    """An agent that has nothing but the tools."""

    def __init__(self, client: Any, project: str) -> None:
        self._client, self.project = client, project

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a tool, an error too."""
        return payload(await self._client.call_tool(tool, arguments))

    async def add(self, content: str, kind: str = "task", **fields: Any) -> str:
        added = await self.call("add", content=content, kind=kind, project=self.project, **fields)
        return str(added["id"])

    async def do(self, action: str, task: str | None = None, **fields: Any) -> Any:
        """Return what an action answers; an error fails the workflow."""
        of_task = {} if task is None else {"id": task}
        answer = await self.call("manage", action=action, project=self.project, **of_task, **fields)
        assert action in answer, answer
        return answer[action]

    async def refused(self, action: str, task: str, **fields: Any) -> str:
        answer = await self.call("manage", action=action, id=task, **fields)
        assert "error" in answer, answer
        return str(answer["error"])

    async def found(self, query: str, kind: str) -> list[str]:
        hits = await self.call("search", query=query, kinds=[kind], project=self.project)
        return [hit["text"] for hit in hits["memories"]]

    async def finish(self, task: str, learned: str, hours: float = 2) -> Any:
        await self.do("submit_review", task, changes={"commits": ["abc123"]})
        return await self.do(
            "complete_task", task, changes={"hours": hours, "learnings": [learned]}
        )


async def straight(agent: Agent, matter: str, learned: str) -> None:
    task = await agent.add(f"Mend {matter}.", attributes={"priority": "high"})
    started = await agent.do("start_task", task, changes={"assignee": "coder"})
    assert started["status"] == "doing"
    assert started["branch"].startswith("task/mend-")
    done = await agent.finish(task, learned)
    assert done["task"]["status"] == "done"
    assert any(learned in text for text in await agent.found(learned, "episode"))


async def blocked_by_words(agent: Agent, matter: str, learned: str) -> None:
    task = await agent.add(f"Publish {matter}.")
    await agent.do("start_task", task)
    blocked = await agent.do("block_task", task, by=f"The registry refuses {matter}.")
    assert blocked["status"] == "blocked"
    await agent.do("unblock_task", task)
    done = await agent.finish(task, learned)
    assert len(done["error_patterns"]) == 1
    assert any("registry" in text for text in await agent.found("registry", "error_pattern"))


async def blocked_by_a_task(agent: Agent, matter: str, learned: str) -> None:
    first, second = await agent.add(f"Measure {matter}."), await agent.add(f"Improve {matter}.")
    await agent.do("start_task", second)
    waiting = await agent.do("block_task", second, by=first)
    assert waiting["waits_for"] == [first]
    order = await agent.do("prioritize")
    assert [each["task"]["id"] for each in order].index(first) < [
        each["task"]["id"] for each in order
    ].index(second)
    await agent.do("start_task", first)
    await agent.finish(first, learned)
    freed = await agent.do("unblock_task", second)
    assert "waits_for" not in freed
    await agent.finish(second, learned)


async def corrected_by_the_refusal(agent: Agent, matter: str, learned: str) -> None:
    task = await agent.add(f"Rename {matter}.")
    assert "doing, cancelled" in await agent.refused("complete_task", task)
    await agent.do("start_task", task)
    assert "review, blocked, cancelled" in await agent.refused("start_task", task)
    await agent.finish(task, learned)


async def with_a_stale_version(agent: Agent, matter: str, learned: str) -> None:
    task = await agent.add(f"Translate {matter}.")
    started = await agent.do("start_task", task, if_version=1)
    assert "version" in await agent.refused("submit_review", task, if_version=1)
    await agent.do("submit_review", task, if_version=started["version"])
    await agent.do("complete_task", task, changes={"learnings": [learned]})


async def estimated(agent: Agent, matter: str, learned: str) -> None:
    for hours, month in ((2, "May"), (3, "June"), (7, "July")):
        task = await agent.add(f"Check {matter} in {month}.")
        await agent.do("start_task", task)
        await agent.finish(task, learned, hours)
    another = await agent.add(f"Check {matter} in August.")
    estimate = await agent.do("estimate", another)
    assert (estimate["low"], estimate["median"], estimate["high"]) == (2, 3, 7)


async def linked_and_free_of_circles(agent: Agent, matter: str, learned: str) -> None:
    rule = await agent.add(f"Test {matter} before it is released", kind="rule")
    task = await agent.call(
        "add",
        content=f"Test {matter} before it is released again",
        kind="task",
        project=agent.project,
    )
    assert [each["id"] for each in task["linked"]] == [rule]
    assert task["linked"][0]["score"] >= 75
    assert await agent.do("detect_cycles") == []
    await agent.do("start_task", task["id"])
    done = await agent.finish(task["id"], learned)
    related = await agent.call("explore", mode="related", id=done["episode_id"])
    assert rule in {each["id"] for each in related["memories"]}


async def archived_and_handed_over(agent: Agent, matter: str, learned: str) -> None:
    task = await agent.add(f"Remove {matter}.")
    left = await agent.add(f"Document {matter}.")
    await agent.do("start_task", task)
    await agent.finish(task, learned)
    archived = await agent.do("archive", task)
    assert archived["archived"] is True
    handed = await agent.call("explore", mode="wake", project=agent.project)
    items = {each["id"]: each["chosen_as"] for each in handed["wake"]["items"]}
    assert items[left] == "open"
    assert learned in handed["wake"]["text"]


WORKFLOWS: tuple[Callable[[Agent, str, str], Awaitable[None]], ...] = (
    straight,
    blocked_by_words,
    blocked_by_a_task,
    corrected_by_the_refusal,
    with_a_stale_version,
    estimated,
    linked_and_free_of_circles,
    archived_and_handed_over,
)


async def test_nineteen_of_twenty_workflows_complete_through_the_tools_alone(
    open_sqlite: Callable[..., Tally],
) -> None:
    failed: list[str] = []
    for workflow in WORKFLOWS:
        for matter, learned in MATTERS:
            with open_sqlite() as tally:
                # Each in a project of its own: no workflow sees what another one did.
                project = f"{workflow.__name__} of {matter}".replace(" ", "-")
                actor = Actor(user="ann", projects={project})
                async with connected(serve(tally, actor=actor), "auto") as client:
                    try:
                        await workflow(Agent(client, project), matter, learned)
                    except (AssertionError, KeyError) as error:
                        failed.append(f"{workflow.__name__} of {matter}: {error!r}"[:600])

    assert len(WORKFLOWS) * len(MATTERS) == 40
    assert len(failed) <= 2, "\n".join(failed)


async def test_exploring_is_narrowed_by_kind_status_and_link(
    open_sqlite: Callable[..., Tally],
) -> None:
    with open_sqlite() as tally:
        server = serve(tally, actor=Actor(user="ann", agent="coder"))
        async with connected(server, "auto") as client:
            agent = Agent(client, "")

            async def add(content: str, **fields: Any) -> str:
                return str((await agent.call("add", content=content, **fields))["id"])

            rule = await add("Parsers are fuzzed.", kind="rule", auto_link=False)
            first = await add("Order the timber.", kind="task")
            then = await add("Build the shed.", kind="task", depends_on=[first], related_to=[rule])
            await agent.call("manage", action="start_task", id=first)

            async def shown(**narrowed: Any) -> set[str]:
                answer = await agent.call("explore", **narrowed)
                return {each["id"] for each in answer["memories"]}

            assert await shown(mode="list", kinds=["task"]) == {first, then}
            assert await shown(mode="list", status="doing") == {first}
            assert await shown(mode="related", id=then, links=["DEPENDS_ON"]) == {first, then}
            refused = await agent.call("explore", mode="list", links=["DEPEND_ON"])
            assert "DEPENDS_ON" in str(refused["error"])
