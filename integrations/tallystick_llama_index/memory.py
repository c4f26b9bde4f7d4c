"""LlamaIndex memory on a tally: the conversation is stored as turns, and read back compiled to a
budget.

`TallyMemory` is a memory of its own, because a block of LlamaIndex's `Memory` is called several
times for one request, only gets the messages that fall out of the queue, and is put into the system
prompt. `TallyMemoryBlock` is for users of `Memory` all the same: it asks once for a request and
separates sessions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple, cast
from uuid import UUID

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import BaseModel, Field, PrivateAttr, ValidationError
from llama_index.core.memory import BaseMemory, BaseMemoryBlock
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    DEFAULT_TEXT_NODE_TMPL,
    MetadataMode,
    NodeWithScore,
    QueryBundle,
    TextNode,
)

from tallystick.aio import in_thread
from tallystick.compiler import FRAMED
from tallystick.errors import BudgetInfeasible, InvalidInput, NotFound
from tallystick.errors.base import explain_validation
from tallystick.kit import ActorSource, Binder, framed_pieces, working_set_for
from tallystick.kit.binder import id_text
from tallystick.kit.conversations import note_turns, turns_of
from tallystick.kit.rendering import without_frames
from tallystick.logs import get_logger
from tallystick.memory import Item, Put
from tallystick.records import (
    Compaction,
    CompileConfig,
    CompiledContext,
    ContextItem,
    Memory,
    NewMemory,
    Scope,
    SourceRef,
)
from tallystick.tally import BoundTally, Tally
from tallystick_llama_index.actors import call_of_tags
from tallystick_llama_index.conversations import Conversation, note_given
from tallystick_llama_index.render import own_message, read_request, render
from tallystick_llama_index.retriever import with_codes

_PAGE = 200
_ROOM = 2_000
"""Tokens beyond those of the messages, where they are compiled so that nothing is left out."""
_NAMESPACE = "llama_index"
"""The first label of what the tools of a session were asked and answered; the other is the session.
Recall finds no item of a store."""
_MESSAGE = "llama_index_message"
"""The attribute of a turn with its whole message: blocks, calls, and what the model added."""


class TallyMemory(BaseMemory):
    """Chat memory that lasts: `agent.run(…, memory=TallyMemory(tally, session_id="anna-1"))`.

    `put` writes through as a turn of the conversation `session_id`; `get` compiles the conversation
    and what is recalled from elsewhere into `token_limit` tokens.
    """

    session_id: str
    token_limit: int = Field(default=8_000, ge=1)
    memories: int = Field(default=3, ge=0)
    """Number of memories from outside of the session that a request of the user adds at most."""
    compile_config: CompileConfig = Field(default_factory=lambda: CompileConfig(relevance_floor=0))
    """By default without a floor of relevance: a retriever has chosen the nodes."""
    compaction: Compaction = "cut"
    """What becomes of long memories that do not fit: `summary` takes theirs, where there is one."""
    _binder: Binder = PrivateAttr()

    def __init__(
        self,
        tally: Tally | BoundTally | None = None,
        *,
        session_id: str | int | UUID = "chat",
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        **fields: Any,
    ) -> None:
        """`actor` says who acts, by default what the call names in its instrument tags
        (docs/who-acts.md). `fields` are `token_limit`, `memories`, `compile_config`
        and `compaction`. Raises InvalidInput.
        """
        binder = Binder(
            cast(Tally, tally),
            runtime="llama_index",
            piece="TallyMemory",
            actor=actor,
            scope=scope,
            usage="TallyMemory({}, session_id='chat-1')",
        )
        with checked_fields("TallyMemory", type(self), fields):
            super().__init__(**{"session_id": id_text(session_id) or session_id, **fields})
        self._binder = binder

    def __repr__(self) -> str:
        return self._binder.describe(session_id=self.session_id, token_limit=self.token_limit)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, for LlamaIndex's own serialisation."""
        return "TallyMemory"

    @classmethod
    def from_defaults(
        cls,
        tally: Tally | BoundTally | None = None,
        *,
        session_id: str | int | UUID = "chat",
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        **fields: Any,
    ) -> TallyMemory:
        """Same as `TallyMemory(…)`, under LlamaIndex's own name."""
        return cls(tally, session_id=session_id, actor=actor, scope=scope, **fields)

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """Return the compiled messages to send before `input`; `initial_token_count` tokens are
        already spent.

        Where that is too little for a compile, the newest turns that fit are returned, without
        memories, and the last turn in any case, as LlamaIndex's own Memory does.
        """
        bound = self._bound()
        entries = _entries(bound, self.session_id)
        history = [entry.message for entry in entries]
        requests = [place for place, each in enumerate(history) if each.role == MessageRole.USER]
        query = input or (history[requests[-1]].content if requests else None) or ""
        is_waiting = bool(input) and not (
            history and history[-1].role == "user" and history[-1].content == input
        )
        count = bound.tally.counter(None).count
        latest = [ChatMessage(query, role=MessageRole.USER)] if is_waiting else []
        request = read_request([*history, *latest], count=count)
        turn = None if is_waiting or not requests else entries[requests[-1]].turn_id
        remembered = working_set_for(
            bound, query, conversation=self.session_id, turn=turn, memories=self.memories
        )
        compile_ = partial(
            bound.compile,
            query=query or None,
            config=self.compile_config,
            target=FRAMED,
            coverage="recalled",
            compaction=self.compaction,
        )
        limit = max(1, self.token_limit - initial_token_count)
        earlier = request.items[: len(request.items) - len(latest)]
        newest = _newest_turns(earlier, limit, count)
        last_turn = {item.id for item in _newest_turns(earlier, 0, count)}
        compiled: CompiledContext | None = None
        try:
            compiled = compile_([*request.items, *remembered], budget=limit)
            is_small = not last_turn <= {item.id for item in compiled.selected_items}
        except BudgetInfeasible:
            is_small = True
        if compiled is None or is_small:
            get_logger("llama_index").warning(
                "memory.small_limit", limit=limit, left_out=len(earlier) - len(newest)
            )
            items = [*newest, *request.items[len(earlier) :]]
            whole = 2 * sum(_tokens(item, count) for item in items)
            compiled = compile_(items, budget=_ROOM + whole)
        messages = render(compiled, request).messages
        messages = messages[:-1] if is_waiting else messages
        note_given(messages, Conversation(history, self.session_id, turn))
        return messages

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        """Same as `get`."""
        return await in_thread(lambda: self.get(input, **kwargs))

    def get_all(self) -> list[ChatMessage]:
        """Return every message of the session, oldest first."""
        return [entry.message for entry in _entries(self._bound(), self.session_id)]

    def put(self, message: ChatMessage) -> None:
        """Store a message as the next turn of the session."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Store messages as the next ones of the session. What is said is a turn, which recall
        finds; calls of tools and their results are kept beside it.
        """
        _put(self._bound(), self.session_id, messages)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Same as `put_messages`."""
        await in_thread(self.put_messages, messages)

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace the messages of the session; the former ones are forgotten, and can be
        recovered.
        """
        history = self.get_all()
        if messages[: len(history)] != history:
            self.reset()
            history = []
        self.put_messages(messages[len(history) :])

    def reset(self) -> None:
        """Forget the session; its turns can be recovered within retention."""
        bound = self._bound()
        for turn in list(turns_of(bound, self.session_id)):
            bound.forget(turn.id, reason="the session was reset")
        items = _tool_items(bound, self.session_id)
        bound.items.put([Put(item.namespace, item.key, None) for item in items])

    def is_on(self, tally: Tally) -> bool:
        """Return True if the session is kept on this tally."""
        return self._binder.tally is tally

    def _bound(self) -> BoundTally:
        bound = self._binder.bound(call_of_tags(self._binder, session=self.session_id))
        return bound


class TallyMemoryBlock(BaseMemoryBlock[str]):
    """Long-term memory for LlamaIndex's own `Memory`: `memory_blocks=[TallyMemoryBlock(tally)]`.

    Messages that fall out of the queue are stored as turns of their session; memories are recalled
    for the latest request of the user, framed as data.
    """

    name: str = "tallystick"
    memories: int = Field(default=3, ge=1)
    _binder: Binder = PrivateAttr()
    _queue: str = PrivateAttr()
    """Names the queue as it is now: a message that leaves it makes it another."""

    def __init__(
        self,
        tally: Tally | BoundTally | None = None,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        **fields: Any,
    ) -> None:
        """`fields` are `name`, `priority` and `memories`. Raises InvalidInput."""
        binder = Binder(
            cast(Tally, tally),
            runtime="llama_index",
            piece="TallyMemoryBlock",
            actor=actor,
            scope=scope,
        )
        with checked_fields("TallyMemoryBlock", type(self), fields):
            super().__init__(**fields)
        self._binder = binder
        self._queue = binder.tally.new_id()

    def __repr__(self) -> str:
        return self._binder.describe(memories=self.memories)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        session = str(block_kwargs.get("session_id") or "chat")
        requests = [m.content or "" for m in messages or () if m.role == MessageRole.USER]
        if not requests:
            return ""
        turn = f"{self._queue} {session} {len(requests)}"
        return await in_thread(self._recall, session, requests[-1], turn)

    def _recall(self, session: str, query: str, turn: str) -> str:
        bound = self._bound(session)
        # The turns of the session that are stored are those that left the prompt.
        remembered = working_set_for(
            bound,
            query,
            conversation=session,
            in_prompt=False,
            turn=turn,
            memories=self.memories,
        )
        return framed_pieces(bound, remembered)

    def _bound(self, session: str) -> BoundTally:
        bound = self._binder.bound(call_of_tags(self._binder, session=session))
        return bound

    async def _aput(self, messages: list[ChatMessage]) -> None:
        by_session: dict[str, list[ChatMessage]] = {}
        for message in messages:
            session = str(message.additional_kwargs.get("session_id") or "chat")
            by_session.setdefault(session, []).append(message)
        for session, turns in by_session.items():
            await in_thread(self._put, session, turns)
        self._queue = self._binder.tally.new_id()

    def _put(self, session: str, messages: list[ChatMessage]) -> None:
        # Nobody reads the session back: of tools there is nothing to keep.
        spoken = [message for message in messages if not _is_of_tool(message)]
        _put(self._bound(session), session, spoken)


class TallyNodePostprocessor(BaseNodePostprocessor):
    """Compiles retrieved nodes into a budget: copies and contradicted nodes are left out, long ones
    shortened.

    `index.as_query_engine(node_postprocessors=[TallyNodePostprocessor(tally, token_budget=2_000)])`
    """

    token_budget: int = Field(ge=1)
    compile_config: CompileConfig = Field(default_factory=lambda: CompileConfig(relevance_floor=0))
    """By default without a floor of relevance: a retriever has chosen the nodes."""
    _binder: Binder = PrivateAttr()

    def __init__(
        self,
        tally: Tally | BoundTally | None = None,
        *,
        token_budget: int,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        **fields: Any,
    ) -> None:
        """`token_budget` is the most tokens of all nodes together. `fields` are
        `compile_config` and `callback_manager`. Raises InvalidInput.
        """
        binder = Binder(
            cast(Tally, tally),
            runtime="llama_index",
            piece="TallyNodePostprocessor",
            actor=actor,
            scope=scope,
            usage="TallyNodePostprocessor({}, token_budget=2_000)",
        )
        with checked_fields("TallyNodePostprocessor", type(self), fields):
            super().__init__(**{"token_budget": token_budget, **fields})
        self._binder = binder

    def __repr__(self) -> str:
        return self._binder.describe(token_budget=self.token_budget)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        bound = self._binder.bound(call_of_tags(self._binder))
        items = {
            node.node.node_id: ContextItem(
                id=node.node.node_id,
                kind="retrieval_doc",
                content=node.node.get_content(metadata_mode=MetadataMode.NONE),
                source_ref=SourceRef(source_type="retrieval", uri=f"node:{node.node.node_id}"),
            )
            for node in nodes
        }
        query = query_bundle.query_str if query_bundle is not None else None
        compiled = bound.compile(
            list(items.values()),
            budget=self.token_budget,
            query=query,
            config=self.compile_config,
            target=FRAMED,
            coverage="recalled",
        )
        texts = {item.id: item.content for item in compiled.selected_items}
        selected = [node for node in nodes if node.node.node_id in texts]
        return [
            node
            if texts[node.node.node_id] == items[node.node.node_id].content
            else _with_text(bound, node, texts)
            for node in {node.node.node_id: node for node in reversed(selected)}.values()
        ][::-1]


def _with_text(bound: BoundTally, node: NodeWithScore, texts: dict[str, str]) -> NodeWithScore:
    original = node.node
    text = TextNode(
        id_=original.node_id,
        text=texts[original.node_id],
        metadata={**original.metadata, "tallystick": "compressed"},
        excluded_llm_metadata_keys=[*original.excluded_llm_metadata_keys, "tallystick"],
        excluded_embed_metadata_keys=original.excluded_embed_metadata_keys,
        relationships=original.relationships,
        text_template=getattr(original, "text_template", DEFAULT_TEXT_NODE_TMPL),
    )
    # The frame of a recalled memory has a code over its text, and the text is another one now.
    with_codes(bound, [text])
    return NodeWithScore(node=text, score=node.score)


@contextmanager
def checked_fields(piece: str, model: type[BaseModel], fields: Mapping[str, Any]) -> Iterator[None]:
    """Raise InvalidInput for fields that a model does not have, which pydantic would ignore, and
    for values that do not fit.
    """
    unknown = [name for name in fields if name not in model.model_fields]
    if unknown:
        raise InvalidInput(
            f"{piece} has no argument `{unknown[0]}`. Use {', '.join(model.model_fields)}."
        )
    try:
        yield
    except ValidationError as error:
        raise InvalidInput(f"{piece}: {explain_validation(error)}.") from error


def _newest_turns(
    messages: Sequence[ContextItem], limit: int, count: Callable[[str], int]
) -> list[ContextItem]:
    """Return the instructions, and the newest turns that fit `limit` with them: the last one in any
    case. A turn is a request of the user with everything up to the next.
    """
    instructions = [item for item in messages if item.kind == "system"]
    turns: list[list[ContextItem]] = []
    for item in messages:
        if item.kind == "user_msg" or (not turns and item.kind != "system"):
            turns.append([])
        if item.kind != "system":
            turns[-1].append(item)
    used = sum(_tokens(item, count) for item in instructions)
    newest: list[list[ContextItem]] = []
    for turn in reversed(turns):
        used += sum(_tokens(item, count) for item in turn)
        if newest and used > limit:
            break
        newest.insert(0, turn)
    chosen = {id(item) for item in (*instructions, *(item for turn in newest for item in turn))}
    return [item for item in messages if id(item) in chosen]


def _tokens(item: ContextItem, count: Callable[[str], int]) -> int:
    return count(item.content) if item.token_estimate is None else item.token_estimate


class _Entry(NamedTuple):
    """A message of a session."""

    message: ChatMessage
    turn_id: str | None = None
    """The turn that it is; None for a call of a tool, or its result."""


def _entries(bound: BoundTally, session: str) -> list[_Entry]:
    """Return the messages of a session, oldest first: each turn, and behind it what its tools were
    asked and answered.
    """
    behind: dict[str, list[_Entry]] = {}
    for item in _tool_items(bound, session):
        message = ChatMessage.model_validate(item.value["message"])
        behind.setdefault(str(item.value["behind"]), []).append(_Entry(message))
    entries = behind.get("", [])
    agent_of = cache(partial(_agent_of, bound))
    for turn in sorted(turns_of(bound, session), key=lambda turn: turn.position or 0):
        entries += [_Entry(_message_of(turn, agent_of), turn.id), *behind.get(turn.id, ())]
    return entries


def _tool_items(bound: BoundTally, session: str) -> list[Item]:
    """Return what the tools of a session were asked and answered, oldest first."""
    items: list[Item] = []
    while True:
        page = bound.items.find((_NAMESPACE, session), limit=_PAGE, offset=len(items))
        items += page
        if len(page) < _PAGE:
            return sorted(items, key=lambda item: item.key)


def _put(bound: BoundTally, session: str, messages: Sequence[ChatMessage]) -> None:
    """Store messages as the next ones of a session."""
    cleaned = (own_message(message, partial(without_frames, bound)) for message in messages)
    own = [message for message in cleaned if message is not None]
    spoken = [message for message in own if not _is_of_tool(message)]
    starts_with_tool = bool(own) and _is_of_tool(own[0])
    latest = partial(bound.memories, kinds=["turn"], conversation=session, limit=1)
    before = latest() if starts_with_tool else []
    new = [_turn_of(message, session) for message in spoken]
    stored = bound.remember_many(new) if new else []
    note_turns(
        bound,
        [
            (str(message.role.value), message.content, remembered)
            for message, remembered in zip(spoken, stored, strict=True)
            if message.content
        ],
        observer="TallyMemory",
    )
    if len(spoken) == len(own):
        return
    behind, ids = before[0].id if before else "", iter(stored)
    puts: list[Put] = []
    for message in own:
        if not _is_of_tool(message):
            behind = next(ids).id
            continue
        value = {"behind": behind, "message": _body_of(message)}
        puts.append(Put((_NAMESPACE, session), bound.tally.new_id(), value, index=()))
    bound.items.put(puts)


def _is_of_tool(message: ChatMessage) -> bool:
    """Return True for a result of a tool, and for a message that only calls tools."""
    if message.role in (MessageRole.TOOL, MessageRole.FUNCTION):
        return True
    calls = [block for block in message.blocks if block.block_type == "tool_call"]
    return not message.content and bool(calls or message.additional_kwargs.get("tool_calls"))


def _turn_of(message: ChatMessage, session: str) -> NewMemory:
    body = _body_of(message)
    text = message.content or json.dumps(
        body["blocks"] or body["additional_kwargs"], ensure_ascii=False
    )
    return NewMemory(
        content=text,
        kind="turn",
        speaker=str(message.role.value),
        conversation=session,
        attributes={_MESSAGE: body},
    )


def _body_of(message: ChatMessage) -> dict[str, Any]:
    body = message.model_dump(mode="json")
    body["additional_kwargs"] = json.loads(json.dumps(message.additional_kwargs, default=_fallback))
    return body


def _fallback(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def _message_of(turn: Memory, agent_of: Callable[[str], str | None]) -> ChatMessage:
    body = turn.attributes.get(_MESSAGE)
    if isinstance(body, dict):
        return ChatMessage.model_validate(body)
    # Whoever captured it has stored a name, not a role.
    roles: Sequence[str] = [role.value for role in MessageRole]
    if turn.speaker in roles:
        return ChatMessage(turn.content, role=MessageRole(turn.speaker))
    run_id = turn.source_run_id
    is_answer = run_id is not None and turn.speaker == agent_of(run_id)
    return ChatMessage(turn.content, role=MessageRole.ASSISTANT if is_answer else MessageRole.USER)


def _agent_of(bound: BoundTally, run_id: str) -> str | None:
    """Return the agent of a run; None if that is gone."""
    try:
        return bound.recordings.run(run_id).agent_name
    except NotFound:
        return None
