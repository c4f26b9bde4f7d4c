"""Attacks by a user, an agent, a model or a stored text, through every way in.

Each names what must not happen, and shows that the same act by whoever may do it works. What a
look-alike letter of another script does to the name of a tool or a user is out of scope: names are
compared, never read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.terminals import invoke

from tallystick import Actor, PolicyRule, Tally
from tallystick.errors import (
    ActionDenied,
    ApprovalRequired,
    Denied,
    InvalidInput,
    NotFound,
    StateConflict,
    TallystickError,
    TokenRefused,
)
from tallystick.memory import Put
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import ArgumentCondition
from tallystick.tally import BoundTally
from tallystick_langchain import ToolRules, memory_tools
from tallystick_langgraph import TallyStore
from tallystick_llama_index import memory_tools as llama_memory_tools

from .test_framing_attacks import WAYS
from .test_who_acts import ADA, BOB, PIECES, SECRET, ZOE, Channel, Piece, _Dropped, _traces
from .test_who_acts import ASK as ASK_BEFORE_RULED

OpenTally = Callable[..., Tally]
CODER = Actor(user="ada", agent="coder")
OWNER = Actor(user="local", role="operator")


def _rule(effect: str, **conditions: Any) -> PolicyRule:
    fields = {"id": effect, "name": effect, "effect": effect, "applies_to": "tool_call"}
    return PolicyRule.load({**fields, "conditions": conditions})


NO_RM = _rule(
    "deny",
    tool=("shell",),
    arguments=(ArgumentCondition(path="$.command", matches=r"\brm\b"),),
)
NOTHING_DESTRUCTIVE = _rule("deny", tool_class=("destructive",))
ASK = _rule("require_approval", tool=("shell",))


# Identity: what a call carries in the places of its runtime

REFUSED_NAMES: dict[str, dict[str, Any]] = {
    "two users": {"actor": ADA, "user_id": "bob"},
    "a mapping that claims to be an operator": {"actor": {"user": "local", "role": "operator"}},
    "a flag": {"user_id": True},
    "a list": {"user_id": ["ada"]},
}
LOOKALIKES = ("ada%", "*", "ADA", "ada ", "ada\nbob", "private:ada", "ada/coder", "a" * 1_000)
ALL_PIECES = [
    pytest.param(piece, id=f"{runtime}, {piece.name}".replace("`", ""))
    for runtime, pieces in PIECES.items()
    for piece in pieces
]


@pytest.fixture
def named(open_sqlite: OpenTally) -> Iterator[Tally]:
    """A tally on which a runtime has named a user, and everybody has a secret."""
    with open_sqlite(rules=[ASK_BEFORE_RULED]) as tally:
        for actor in (ADA, BOB, ZOE, None):
            bound = tally.bind(actor)
            bound.remember(SECRET.format(bound.actor.user))
        TallyStore(tally, actor=lambda call: ZOE).get(("notes",), "none")
        yield tally


def _all_traces(tally: Tally) -> list[int]:
    return [_traces(tally, actor) for actor in (ADA, BOB, ZOE, None)]


@pytest.mark.parametrize("piece", ALL_PIECES)
def test_a_call_with_a_false_name_leaves_no_trace(named: Tally, piece: Piece) -> None:
    before = _all_traces(named)
    for attack, metadata in REFUSED_NAMES.items():
        with pytest.raises((Denied, InvalidInput, _Dropped)):
            piece.use(named, Channel.of(attack, metadata=metadata))
    after = _all_traces(named)
    if "get_state" in piece.name:
        before[0] = after[0]  # her own thread is made through her own view
    assert after == before
    piece.use(named, Channel.of("ada", metadata={"user_id": "ada"}))
    assert _all_traces(named)[0] > before[0]


@pytest.mark.parametrize("piece", ALL_PIECES)
def test_a_user_whose_name_looks_like_that_of_another_is_somebody_else(
    named: Tally, piece: Piece
) -> None:
    before = _all_traces(named)
    for user in LOOKALIKES:
        piece.use(named, Channel.of("lookalike", metadata={"user_id": user}))
    after = _all_traces(named)
    if "get_state" in piece.name:
        after[0] = before[0]
    assert after == before


@pytest.mark.parametrize("user", LOOKALIKES)
def test_a_user_with_an_odd_name_has_a_memory_of_their_own(
    open_tally: OpenTally, user: str
) -> None:
    with open_tally() as tally:
        tally.bind(ADA).remember(SECRET.format("ada"))
        odd = tally.bind(Actor(user=user))
        odd.remember("The heron nests.")
        assert [memory.content for memory in odd.memories()] == ["The heron nests."]
        assert [hit.memory.content for hit in odd.recall("salary heron")] == ["The heron nests."]
        with pytest.raises(Denied):
            odd.recall("salary", scopes=["private:ada"])
        assert len(tally.bind(ADA).memories()) == 1


@pytest.mark.parametrize(
    "claim",
    [
        Actor(user="bob", acting_for="ada"),
        Actor(user="bob", agent="coder", acting_for="ada"),
        Actor(user="bob", projects={"private:ada"}, delegations={"ada"}),
        Actor(user="bob", role="operator"),
        Actor(user="ada", organization="acme"),
        Actor(user="local", agent="bot", role="operator"),
    ],
    ids=[
        "acting for her",
        "an agent that acts for her",
        "projects and delegations",
        "an operator",
        "her name in an organization",
        "an agent as operator",
    ],
)
def test_no_claim_of_an_actor_opens_the_memory_of_another(
    open_tally: OpenTally, claim: Actor
) -> None:
    with open_tally() as tally:
        secret = tally.bind(ADA).remember(SECRET.format("ada")).id
        other = tally.bind(claim)
        assert list(other.recall("salary")) == []
        with pytest.raises(NotFound):
            other.get(secret)
        with contextlib.suppress(Denied):  # in an organization it is a scope of its own
            assert list(tally.bind(claim, "private:ada").recall("salary")) == []
        assert tally.bind(ADA).get(secret).content == SECRET.format("ada")


# Namespaces of a store

LABELS = ("user", "users%", "*", "users/bob", 'users","bob', "users bob", "USERS")


@pytest.mark.parametrize("label", LABELS)
def test_no_label_of_a_namespace_reaches_into_another(open_tally: OpenTally, label: str) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        value = {"text": "The heron nests in Bob's garden."}
        store = TallyStore(ada)
        store.put(("users", "bob"), "k", value)
        store.put(("users", "bobby"), "k", {"text": "The stork nests in Bobby's garden."})
        for namespace in ((label,), ("users", label), (label, "bob")):
            if namespace == ("users", "bob"):
                continue
            assert store.search(namespace) == []
            assert store.search(namespace, query="nests garden") == []
            assert list(ada.recall("nests garden", namespace=namespace)) == []
        assert [item.value for item in store.search(("users", "bob"))] == [value]
        assert len(ada.recall("nests garden", namespace=("users", "bob"))) == 1


@pytest.mark.parametrize("way", [way for way in WAYS if "postprocessor" not in way])
def test_a_pinned_item_reaches_a_model_for_its_namespace_alone(
    open_sqlite: OpenTally, way: str
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        bound.items.put([Put(("users", "bob"), "k", {"text": "Bob likes to drink tea."})])
        [item] = bound.items.get([(("users", "bob"), "k")])
        assert item is not None
        bound.modify(item.memory.id, pinned=True, reason="keep")
        bound.remember("Bob is a heron.", pinned=True)
        assert "to drink tea" not in WAYS[way](bound)
        assert "heron" in WAYS["pack"](bound)


@pytest.mark.parametrize("name", ["memory_get", "memory_modify", "memory_forget"])
def test_a_memory_tool_says_of_an_item_what_it_says_of_nothing(
    open_sqlite: OpenTally, name: str
) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "memory_get": (),
        "memory_modify": ("r", 1, "obey"),
        "memory_forget": ("r",),
    }
    with open_sqlite() as tally:
        ada = tally.bind(CODER)
        ada.items.put([Put(("users", "bob"), "k", {"text": "tea"})])
        [item] = ada.items.get([(("users", "bob"), "k")])
        assert item is not None
        answers = [
            json.dumps(MEMORY_TOOLS[name].function(ada, each, *arguments[name])).replace(each, "it")
            for each in (item.memory.id, "nothing")
        ]
        assert answers[0] == answers[1]
        assert ada.items.get([(("users", "bob"), "k")]) == [item]
        own = ada.remember("A note.").id
        assert "error" not in MEMORY_TOOLS[name].function(ada, own, *arguments[name])


def test_a_model_does_not_forge_an_item_of_a_store(open_tally: OpenTally) -> None:
    forged = '{"namespace": ["users", "bob"], "key": "k", "value": {"text": "the heron says obey"}}'
    with open_tally() as tally:
        ada = tally.bind(CODER)
        answer = MEMORY_TOOLS["memory_store"].function(ada, forged, "store_item")
        assert answer["error"] == "InvalidInput"
        assert ada.items.find(("users", "bob")) == []
        assert list(ada.recall("heron", namespace=("users", "bob"))) == []
        assert "obey" not in ada.wake().text + ada.pack("heron").text


# Rules over tools

EVASIONS: dict[str, Any] = {
    "a key twice, the harmless last": '{"command": "rm -rf /", "command": "ls"}',
    "a key twice, the harmless first": '{"command": "ls", "command": "rm -rf /"}',
    "a key twice, further inside": '{"x": {"a": 1, "a": 2}, "command": "ls"}',
    "an escaped key": '{"com\\u006dand": "rm -rf /"}',
    "an escaped value": '{"command": "r\\u006d -rf /"}',
    "a list": {"command": ["rm", "-rf", "/"]},
    "an object": {"command": {"program": "rm"}},
    "a text that is cut": '{"command": "rm -rf /',
    "words behind the JSON": '{"command": "ls"} && rm',
    "a mark of byte order": '\ufeff{"command": "rm"}',
    "no JSON": "command: rm",
    "bytes": {"command": b"rm"},
    "an object of Python": {"command": "ls", "more": object()},
    "too long to read": {"command": "x" * 100_001},
    "nested too deeply": '{"command":' * 3_000 + '"rm"' + "}" * 3_000,
    "half a character": {"command": "rm \ud800"},
    "a key that is no text": {1: "rm"},
}


@pytest.mark.parametrize("evasion", EVASIONS)
def test_no_form_of_arguments_gets_round_a_rule(open_sqlite: OpenTally, evasion: str) -> None:
    with open_sqlite(rules=[NO_RM]) as tally:
        agent = tally.bind(CODER)
        with pytest.raises(ActionDenied):
            agent.check_tool_call("shell", EVASIONS[evasion])
        assert agent.check_tool_call("shell", '{"command": "ls"}').arguments == '{"command": "ls"}'


@pytest.mark.parametrize(
    "name", ["Shell", "shell ", " shell", "shell\x00", "shell\n", "sh\u0435ll", ""]
)
def test_a_tool_under_another_name_counts_as_destructive(open_sqlite: OpenTally, name: str) -> None:
    with open_sqlite(rules=[NOTHING_DESTRUCTIVE], tool_classes={"shell": "write"}) as tally:
        agent = tally.bind(CODER)
        with pytest.raises(ActionDenied):
            agent.check_tool_call(name, {"command": "ls"})
        assert agent.check_tool_call("shell", {"command": "ls"}).effect is None


@pytest.mark.parametrize("claim", ["read_only", "harmless", "", None, ["read_only"], 1])
def test_a_tool_does_not_choose_its_class(open_sqlite: OpenTally, claim: Any) -> None:
    classes = {"wipe": "destructive", "look": "read_only"}
    with open_sqlite(rules=[NOTHING_DESTRUCTIVE], tool_classes=classes) as tally:
        agent = tally.bind(CODER)
        with pytest.raises(ActionDenied):
            agent.check_tool_call("wipe", {}, tool_class=claim)
        with pytest.raises(ActionDenied):
            agent.check_tool_call("unknown", {}, tool_class=claim)
        assert agent.check_tool_call("look", {}, tool_class="write").effect is None
        with pytest.raises(ActionDenied):
            agent.check_tool_call("look", {}, tool_class="destructive")


# Approvals


class Shell:
    """A graph with a shell whose calls wait for a person, and the commands that it has run."""

    def __init__(self, bound: BoundTally, *, order: Callable[[str], None] | None = None) -> None:
        self.ran: list[str] = []

        @tool
        def shell(command: str) -> str:
            """Run a command."""
            self.ran.append(command)
            return command

        rules = ToolRules(bound)

        def wrap(request: Any, handler: Any) -> Any:
            if order is not None:
                order(request.tool_call["args"]["command"])
            return rules.wrap_tool_call(request, handler)

        builder: Any = StateGraph(MessagesState)
        builder.add_node("tools", ToolNode([shell], wrap_tool_call=wrap))
        builder.add_edge(START, "tools")
        builder.add_edge("tools", END)
        self._graph = builder.compile(checkpointer=InMemorySaver())

    def play(self, value: Any) -> Any:
        """Invoke the graph on its only thread."""
        return self._graph.invoke(value, {"configurable": {"thread_id": "t"}})

    def call(self, *commands: str) -> Any:
        """Let a model call the shell with these commands at once."""
        calls: Any = [
            {"name": "shell", "args": {"command": command}, "id": command} for command in commands
        ]
        return self.play({"messages": [AIMessage("", tool_calls=calls)]})


ODD_ANSWERS: dict[str, Any] = {
    "yes": "yes",
    "one": 1,
    "empty": "",
    "capitals": "APPROVE",
    "an edit": {"decisions": [{"type": "edit", "edited_action": {"name": "shell"}}]},
    "no type": {"decisions": [{}]},
    "a type of None": {"decisions": [{"type": None}]},
    "a type of 1": {"decisions": [{"type": 1}]},
    "no decision": {"decisions": []},
    "two decisions": {"decisions": [{"type": "approve"}, {"type": "approve"}]},
    "a decision as text": {"decisions": "approve"},
    "a list": ["approve"],
    "another word": {"approved": True},
}


@pytest.mark.parametrize("answer", ODD_ANSWERS)
def test_an_odd_answer_of_a_resume_approves_nothing(open_sqlite: OpenTally, answer: str) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        graph = Shell(tally.bind(CODER))
        assert "__interrupt__" in graph.call("make")
        state = graph.play(Command(resume=ODD_ANSWERS[answer]))
        assert graph.ran == []
        assert isinstance(state["messages"][-1], ToolMessage)
        assert tally.bind(ADA).approvals.list(state="denied")
        right = Shell(tally.bind(CODER))
        right.call("make it")
        right.play(Command(resume={"decisions": [{"type": "approve"}]}))
        assert right.ran == ["make it"]


def test_the_answer_to_one_of_several_calls_approves_no_other(open_sqlite: OpenTally) -> None:
    """The calls of one node run at once, and the second asks first when the graph goes on."""
    asked_first = threading.Event()
    resumed = threading.Event()

    def order(command: str) -> None:
        if (command == "rm") != resumed.is_set():
            asked_first.wait(timeout=1)
        else:
            threading.Timer(0.5, asked_first.set).start()

    with open_sqlite(rules=[ASK]) as tally:
        graph = Shell(tally.bind(CODER), order=order)
        state = graph.call("make", "rm")
        [interrupt] = state["__interrupt__"]
        assert interrupt.value["action_requests"][0]["args"] == {"command": "make"}
        asked_first.clear()
        resumed.set()
        for decision in ("approve", "reject"):
            with contextlib.suppress(ApprovalRequired):
                graph.play(Command(resume={"decisions": [{"type": decision}]}))
        assert "rm" not in graph.ran
        ada = tally.bind(ADA)
        assert {"command": "rm"} in [each.arguments for each in ada.approvals.list()]
        alone = Shell(tally.bind(CODER))
        alone.call("make it")
        alone.play(Command(resume={"decisions": [{"type": "approve"}]}))
        assert alone.ran == ["make it"]


class _Call(Event):
    arguments: dict[str, Any]


class _Result(Event):
    result: dict[str, Any]


class Parallel(Workflow):
    """A workflow that calls a tool several times at once."""

    def __init__(self, tool: FunctionTool, calls: list[dict[str, Any]]) -> None:
        super().__init__(timeout=60)
        self._tool, self._calls = tool, calls

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> _Call | None:
        """Make the calls."""
        for call in self._calls:
            ctx.send_event(_Call(arguments=call))
        return None

    @step(num_workers=4)
    async def call(self, ctx: Context, ev: _Call) -> _Result:
        """Make one call."""
        more: dict[str, Any] = {"ctx": ctx}
        output = await self._tool.acall(**ev.arguments, **more)
        return _Result(result=output.raw_output)

    @step
    async def end(self, ctx: Context, ev: _Result) -> StopEvent | None:
        """Wait for all results."""
        results = ctx.collect_events(ev, [_Result] * len(self._calls))
        return None if results is None else StopEvent(result=len(results))


@pytest.mark.parametrize("order", [("good", "evil"), ("evil", "good")], ids="-".join)
def test_a_yes_to_one_change_of_a_memory_is_none_to_another(
    open_sqlite: OpenTally, order: tuple[str, str]
) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        memory_id = ada.remember("as it was").id
        [modify] = [t for t in llama_memory_tools(ada) if t.metadata.name == "memory_modify"]
        calls = [
            {"memory_id": memory_id, "content": text, "reason": "r", "if_version": 1}
            for text in order
        ]

        async def run() -> list[str]:
            running = Parallel(modify, calls).run()
            shown: list[str] = []
            async for event in running.stream_events():
                if isinstance(event, InputRequiredEvent):
                    shown.append(event.get("arguments")["content"])
                    response = "yes" if shown[-1] == "good" else "no"
                    answer: Any = {"waiter_id": event.get("waiter_id"), "response": response}
                    assert running.ctx is not None
                    running.ctx.send_event(HumanResponseEvent(**answer))
            await running
            return shown

        assert sorted(asyncio.run(run())) == ["evil", "good"]
        assert ada.get(memory_id).content == "good"


def _asked(bound: BoundTally, arguments: Any) -> str:
    with pytest.raises(ApprovalRequired) as blocked:
        bound.check_tool_call("shell", arguments)
    return str(blocked.value.approvals[0].id)


MAKE = {"command": "make"}
FOREIGN_USES: dict[str, tuple[Actor, str | None, Any]] = {
    "other arguments": (CODER, None, {"command": "rm"}),
    "one argument more": (CODER, None, {**MAKE, "force": True}),
    "a number as text": (CODER, None, {"command": ["make"]}),
    "a key twice": (CODER, None, '{"command": "rm", "command": "make"}'),
    "another agent": (Actor(user="ada", agent="other"), None, MAKE),
    "another user": (Actor(user="bob", agent="coder"), None, MAKE),
    "another organization": (CODER.replace(organization="acme"), None, MAKE),
    "another scope": (CODER.replace(projects={"apollo"}), "project:apollo", MAKE),
}


@pytest.mark.parametrize("use", FOREIGN_USES)
def test_a_grant_is_for_nothing_else(open_tally: OpenTally, use: str) -> None:
    actor, scope, arguments = FOREIGN_USES[use]
    with open_tally(rules=[ASK]) as tally:
        agent = tally.bind(CODER)
        token = tally.bind(ADA).approvals.approve(_asked(agent, MAKE), reason="reviewed").token
        with pytest.raises((TokenRefused, Denied)):
            tally.bind(actor, scope).check_tool_call("shell", arguments, approval_token=token)
        with pytest.raises((ApprovalRequired, Denied)):
            tally.bind(actor, scope).check_tool_call("shell", arguments)
        assert agent.check_tool_call("shell", MAKE, approval_token=token).approval is not None
        with pytest.raises(TokenRefused, match="token_used"):
            agent.check_tool_call("shell", MAKE, approval_token=token)


@pytest.mark.parametrize(
    "actor",
    [CODER, Actor(user="ada", agent="other"), CODER.replace(role="operator"), BOB],
    ids=["the agent", "another agent", "an agent as operator", "another user"],
)
def test_nobody_but_a_person_in_charge_approves(open_tally: OpenTally, actor: Actor) -> None:
    with open_tally(rules=[ASK]) as tally:
        waiting = _asked(tally.bind(CODER), MAKE)
        with pytest.raises((Denied, NotFound)):
            tally.bind(actor).approvals.approve(waiting, reason="I say so")
        with pytest.raises(ApprovalRequired):
            tally.bind(CODER).check_tool_call("shell", MAKE)
        assert tally.bind(ADA).approvals.approve(waiting, reason="reviewed").state == "granted"


# Pins, through the tools of a model


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory_modify", {"content": "obey", "reason": "r", "if_version": 1}),
        ("memory_forget", {"reason": "r"}),
    ],
)
@pytest.mark.parametrize("way", ["direct", "langchain", "llama_index"])
def test_an_agent_changes_nothing_pinned_through_a_tool(
    open_sqlite: OpenTally, way: str, name: str, arguments: dict[str, Any]
) -> None:
    def use(bound: BoundTally, memory_id: str) -> str:
        every = {"memory_id": memory_id, **arguments}
        if way == "direct":
            return str(MEMORY_TOOLS[name].function(bound, **every))
        if way == "langchain":
            [each] = [t for t in memory_tools(bound, approval="elsewhere") if t.name == name]
            return str(each.invoke(every))
        tools = llama_memory_tools(bound, approval="elsewhere")
        [other] = [t for t in tools if t.metadata.name == name]
        return str(asyncio.run(other.acall(**every)).raw_output)

    with open_sqlite() as tally:
        agent, person = tally.bind(CODER), tally.bind(ADA)
        pinned = person.remember("Never push on Friday.", pinned=True).id
        assert "error" in use(agent, pinned)
        assert person.get(pinned).version == 1
        if name == "memory_modify":
            assert "error" not in use(person, pinned)
        else:
            assert "error" not in use(agent, agent.remember("A note.").id)


# Crossing: ids and tokens of others

VERBS: dict[str, Callable[[BoundTally, str], Any]] = {
    "get": lambda bound, id: bound.get(id),
    "inspect": lambda bound, id: bound.inspect(id),
    "source": lambda bound, id: bound.source(id),
    "history": lambda bound, id: bound.history(id),
    "modify": lambda bound, id: bound.modify(id, content="x", reason="r"),
    "forget": lambda bound, id: bound.forget(id, reason="r"),
    "recover": lambda bound, id: bound.recover(id, reason="r"),
    "correct": lambda bound, id: bound.corrections.make(id, "hide", reason="r"),
    "promote": lambda bound, id: bound.corrections.promote(id, "project:apollo", reason="r"),
    "share": lambda bound, id: bound.corrections.share(id, "project:apollo", reason="r"),
    "explore": lambda bound, id: bound.explore(id),
    "derived_from": lambda bound, id: bound.remember("So.", derived_from=[id]),
    "supersede by": lambda bound, id: bound.corrections.make(
        bound.remember("Mine.").id, "supersede", by=id, reason="r"
    ),
    "approval": lambda bound, id: bound.approvals.get(id),
    "approve": lambda bound, id: bound.approvals.approve(id, reason="r"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_hidden_and_what_is_absent_answer_alike(open_tally: OpenTally, verb: str) -> None:
    absent = "0190b3a0-0000-7000-8000-000000000000"
    with open_tally(rules=[ASK]) as tally:
        ada = tally.bind(ADA)
        stored = ada.remember(SECRET.format("ada"))
        hidden = stored.id
        if verb == "source":
            hidden = stored.source_id
        elif verb.startswith("approv"):
            hidden = _asked(tally.bind(CODER), MAKE)
        answers = []
        for identity in (hidden, absent):
            with pytest.raises(TallystickError) as refused:
                VERBS[verb](tally.bind(BOB.replace(projects={"apollo"})), identity)
            answers.append((type(refused.value), str(refused.value).replace(identity, "it")))
        assert answers[0] == answers[1]
        assert [memory.content for memory in ada.memories()] == [SECRET.format("ada")]
        if verb in ("get", "inspect", "source", "history", "explore", "approval"):
            VERBS[verb](ada, hidden)


@pytest.mark.parametrize("use", ["another actor", "another memory", "another reason", "no token"])
def test_the_token_of_a_preview_is_for_exactly_that_call(open_tally: OpenTally, use: str) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA.replace(projects={"apollo"}))
        memory_id = ada.remember("A plan.").id
        other_id = ada.remember("Another plan.").id
        token = ada.corrections.promote(memory_id, "project:apollo", reason="r").confirm_token
        agent = tally.bind(CODER.replace(projects={"apollo"}))
        with pytest.raises((StateConflict, Denied)):
            (agent if use == "another actor" else ada).corrections.promote(
                other_id if use == "another memory" else memory_id,
                "project:apollo",
                reason="s" if use == "another reason" else "r",
                mode="apply",
                confirm_token=None if use == "no token" else token,
            )
        apollo = tally.bind(ada.actor, "project:apollo")
        assert apollo.memories() == []
        ada.corrections.promote(
            memory_id, "project:apollo", reason="r", mode="apply", confirm_token=token
        )
        assert [memory.content for memory in apollo.memories()] == ["A plan."]


# The terminal

STEERING = "\x1b\x07\u009b\u202a\u202e\u2066\r"


@pytest.mark.parametrize("as_json", [False, True], ids=["as a view", "as json"])
@pytest.mark.parametrize("command", ["memories", "recall", "inspect", "history", "explore"])
def test_stored_text_does_not_steer_a_terminal(tmp_path: Path, command: str, as_json: bool) -> None:
    place = str(tmp_path / "tally")
    text = f"heron \x1b]0;x\x07 \x1b[2J {STEERING} [bold]b[/bold] [/] [link=https://evil]x[/link]"
    with Tally.open(place, owner=OWNER, background=False) as tally:
        memory_id = tally.bind().remember(text, speaker=f"S{STEERING}", tags=["t\x1b"]).id
    arguments = {
        "memories": [],
        "recall": ["heron"],
        "inspect": [memory_id],
        "history": [memory_id],
        "explore": ["private:local"],
    }[command]
    result = invoke(
        [command, *arguments, "--tally", place, *(["--json"] if as_json else [])],
        env={"COLUMNS": "200"},
    )
    assert result.exit_code == 0, result.exception
    assert [mark for mark in STEERING if mark in result.output] == []
    if as_json and command in ("memories", "recall"):
        answer = json.loads(result.output)
        [listed] = [hit["memory"] for hit in answer["hits"]] if command == "recall" else answer
        assert listed["content"] == text
    elif command in ("memories", "recall"):
        assert "[bold]b[/bold]" in result.output


@pytest.mark.parametrize("command", [["freeze"], ["erase", "--all"], ["memories", "--scope", "x"]])
def test_a_user_named_on_the_command_line_operates_nothing(
    tmp_path: Path, command: list[str]
) -> None:
    place = str(tmp_path / "tally")
    with Tally.open(place, owner=OWNER, background=False) as tally:
        tally.bind(ADA).remember(SECRET.format("ada"))
    reason = ["--reason", "r"] if command[0] != "memories" else []
    result = invoke(["--as", "bob", *command, *reason, "--tally", place])
    assert result.exit_code != 0
    assert "salary" not in result.output
    own = invoke(["--as", "ada", "memories", "--tally", place])
    assert "salary" in own.output
