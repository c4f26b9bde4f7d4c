"""Call trees: LangChain's callbacks under way, by the root above them, and the run of each root."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.runnables.config import ensure_config

from tallystick.errors import TallystickError
from tallystick.kit import (
    CONTINUES,
    Binder,
    Capture,
    OpenCall,
    RootRun,
    Speakers,
    attribute_requests,
    begin_call,
    earlier_run,
    is_nested,
    run_under_way,
)
from tallystick.kit.binder import call_of_config
from tallystick.recorder import Run, current_run, status_for
from tallystick.records import CallContext, EntryKind, StepKind, StepStatus
from tallystick.tally import BoundTally
from tallystick_langchain.graph import (
    agent_name_of,
    goes_on,
    interrupts_of,
    is_bubble_up,
    place_of,
    stop_step,
)
from tallystick_langchain.hooks import start_under_way
from tallystick_langchain.messages import answer_text, goal_of, request_text

_MOST_HELD = 256
"""Calls that may begin under a root before it is known who acts; then it is decided."""
_NUMBERING = ("seq:step:", "map:key:", "graph:step:", "langsmith:")
"""The beginnings of tags by which LangChain numbers its parts."""


@dataclass(slots=True)
class Tree:
    """The callbacks under one root, and their run once it is known who acts.

    The run starts with the first callback that knows it, mostly that of the root; with the first
    that needs a step; or when the root ends.
    """

    name: str
    inputs: Any
    metadata: Mapping[str, Any]
    run_metadata: dict[str, Any]
    root: RootRun | None = None
    bound: BoundTally | None = None
    refusal: TallystickError | None = None
    """The error for which nothing under the root is recorded."""
    callbacks: list[int] = field(default_factory=list)
    """Callbacks that began under the root; those that never end are dropped with it."""
    guard: threading.Lock = field(default_factory=threading.Lock)
    """Held while the run starts: tasks of a root begin at once, and have one."""


@dataclass(slots=True)
class Callback:
    """A callback under way."""

    is_root: bool
    tree: Tree | None
    """None if another handler of the same tally records the call."""
    path: tuple[str, ...] = ()
    """Names of the chains around it, without the root."""
    call: OpenCall | None = None
    """The model call, tool call or retrieval that it is."""

    def place(self, tags: Sequence[str] | None = None) -> dict[str, Any]:
        """Return where it is: the chains around it, and the user's own tags."""
        path = {"path": "/".join(self.path)} if self.path else {}
        return {**path, **_own_tags(tags)}


class CallTrees:
    """The callbacks under way of one handler, and the run of each root. Safe to share between
    threads.
    """

    def __init__(
        self,
        binder: Binder,
        capture: Capture,
        owner: object,
        *,
        agent_name: str | None,
        speakers: Speakers,
    ) -> None:
        """`owner` is the handler: of several of one tally the first records a call."""
        self._binder, self._capture, self._owner = binder, capture, owner
        self._agent_name, self._speakers = agent_name, speakers
        self.callbacks: dict[int, Callback] = {}
        """Callbacks under way, by the integer of their id: a UUID is hashed by Python code.

        Never iterated: callbacks of other threads come and go in it.
        """

    def run_under_way(self, arguments: Mapping[str, Any]) -> Run | None:
        """Return the run that a hook with these arguments belongs to, if it has started."""
        for name in ("run_id", "parent_run_id"):
            run_id = arguments.get(name)
            callback = self.callbacks.get(run_id.int) if run_id is not None else None
            tree = None if callback is None else callback.tree
            if tree is not None and tree.root is not None:
                return tree.root.run
        return None

    def enter(
        self,
        run_id: UUID,
        parent: UUID | None,
        metadata: Mapping[str, Any] | None,
        name: str | None,
        tags: Sequence[str] | None,
        inputs: Any = None,
    ) -> Callback:
        """Add a callback to the tree of its root; the root joins or starts a run."""
        above = self.callbacks.get(parent.int) if parent is not None else None
        if above is not None:
            callback = self.callbacks[run_id.int] = Callback(False, above.tree, above.path)
            tree = above.tree
            if tree is not None:
                tree.callbacks.append(run_id.int)
                if tree.root is None:
                    is_late = len(tree.callbacks) > _MOST_HELD
                    self.started_root(tree, metadata, if_named=not is_late)
            return callback
        # Kept before the run is started: where that fails, the calls inside are no roots.
        callback = self.callbacks[run_id.int] = Callback(True, None)
        if self._capture.claim(run_id, self._owner):
            metadata = metadata or {}
            thread = {"thread_id": str(metadata["thread_id"])} if "thread_id" in metadata else {}
            callback.tree = Tree(
                self._agent_name or agent_name_of(name, metadata),
                inputs,
                metadata,
                {"langchain_run_id": str(run_id), **thread, **_own_tags(tags)},
            )
            self.started_root(callback.tree, if_named=current_run() is None)
        return callback

    def call_context(self, metadata: Mapping[str, Any]) -> CallContext:
        """Return the call as it is seen from here: that of the runnable that begins, or the one
        around where its config names nobody.
        """

        def call(config: Mapping[str, Any], context: Any = None) -> CallContext:
            own_metadata = {**config.get("metadata", {}), **metadata}
            named = {**config, "metadata": own_metadata}
            return call_of_config(self._binder, named, context=context)

        start = start_under_way()
        begun = None if start is None else call(*start)
        if begun is not None and self._binder.actor_named_in(begun) is not None:
            return begun
        return call(ensure_config())

    def started_root(
        self, tree: Tree, metadata: Mapping[str, Any] | None = None, *, if_named: bool = False
    ) -> RootRun | None:
        """Return the run of a tree, which joins or starts one now if it has not, `if_named` only
        where it is known here who acts. None where it has not, and once that was refused; then the
        event is counted. Raises Denied.
        """
        if tree.root is not None:
            return tree.root
        with tree.guard:
            if tree.refusal is not None and not if_named:
                self._capture.count_gap(tree.refusal)
            if tree.root is None and tree.refusal is None:
                try:
                    call = self.call_context({**tree.metadata, **(metadata or {})})
                    if not if_named or self._binder.actor_named_in(call) is not None:
                        self.start_root(tree, call)
                except TallystickError as error:
                    tree.refusal = error
                    for _ in tree.callbacks:
                        self._capture.count_gap(error)
                    raise
            return tree.root

    def start_root(self, tree: Tree, call: CallContext) -> None:
        tree.bound = self._binder.bound(call)
        goal = goal_of(tree.inputs)
        thread = tree.run_metadata.get("thread_id")
        is_new = run_under_way(tree.bound) is None
        if is_new and goal is None and thread is not None and goes_on(tree.inputs):
            earlier = earlier_run(tree.bound, str(thread))
            if earlier is not None:
                goal = earlier.goal
                tree.run_metadata[CONTINUES] = earlier.metadata.get(CONTINUES, earlier.id)
        tree.root = RootRun.join(tree.bound, tree.name, goal=goal, metadata=tree.run_metadata)

    def keep_turn(self, tree: Tree, outputs: Any) -> None:
        """Remember the turn, if one is to be; an answer that is no text is left out. A root that
        waits for a person has no answer yet: its output is what the user said. One that goes on
        answers the request in the state of its graph.
        """
        root = self.started_root(tree)
        if self._speakers == "off" or tree.bound is None or root is None or is_nested():
            return
        with self._capture(root.run):
            goes_on_with = goes_on(tree.inputs)
            # A graph that is asked to go on after its end does nothing, and says nothing again.
            is_silent = goes_on_with and not tree.callbacks
            answer = None if root.is_waiting or is_silent else answer_text(outputs)
            tree.bound.keep_turn(
                root.run,
                user=_asked_in(outputs) if goes_on_with else request_text(tree.inputs),
                assistant=answer if self._speakers == "both" else None,
                unkept_answer=answer,
                observer="TallyCallbackHandler",
            )

    def leave(self, run_id: UUID, status: StepStatus) -> None:
        """Drop a callback; end the run if it was the root."""
        callback = self.callbacks.pop(run_id.int, None)
        if callback is None or not callback.is_root:
            return
        for child in callback.tree.callbacks if callback.tree is not None else ():
            self.callbacks.pop(child, None)
        self._capture.release(run_id, self._owner)
        if callback.tree is not None and callback.tree.root is not None:
            callback.tree.root.end(status)

    def begin(
        self,
        kind: StepKind,
        run_id: UUID,
        parent: UUID | None,
        metadata: Mapping[str, Any] | None,
        name: str | None,
        tags: Sequence[str] | None,
        inputs: Any = None,
    ) -> OpenCall | None:
        """Open the step of a callback; None where another handler records it."""
        callback = self.enter(run_id, parent, metadata, name, tags, inputs)
        root = None if callback.tree is None else self.started_root(callback.tree, metadata)
        if root is None:
            return None
        place = {
            "langchain_run_id": str(run_id),
            **place_of(metadata or {}),
            **callback.place(tags),
        }
        if place.get("path") == place.get("langgraph_node"):
            # The place in the graph says it already.
            place.pop("path", None)
        callback.call = begin_call(root.run, kind, name=name, metadata=place)
        if kind == "model_call":
            attribute_requests(callback.call.step)
        return callback.call

    def call_of(self, run_id: UUID) -> OpenCall | None:
        """Return the call that a callback under way is, or None."""
        callback = self.callbacks.get(run_id.int)
        return None if callback is None else callback.call

    def leave_step(self, run_id: UUID) -> OpenCall | None:
        """Return the call that ends, if it has a step, which is no longer current."""
        call = self.call_of(run_id)
        if call is not None:
            call.leave()
        return call

    def finish(
        self, run_id: UUID, kind: EntryKind, payload: Any, summary: Mapping[str, Any]
    ) -> None:
        """Record the answer of a call, and end its step."""
        call = self.leave_step(run_id)
        try:
            if call is not None:
                call.finish(kind, payload, summary)
        finally:
            self.leave(run_id, "completed")

    def fail(self, run_id: UUID, error: BaseException) -> None:
        """Record that a call failed, or waits for a person, and end its step."""
        callback, call = self.callbacks.get(run_id.int), self.leave_step(run_id)
        try:
            tree = None if callback is None else callback.tree
            if call is not None and tree is not None and tree.root is not None and call.is_own:
                tree.root.is_waiting = stop_step(call.step, error)
        finally:
            self.leave(run_id, "completed" if is_bubble_up(error) else status_for(type(error)))

    def record_error(self, callback: Callback, tree: Tree, error: BaseException) -> None:
        """Record the error of a chain, or the interrupt it waits for, unless a step has done so."""
        root = self.started_root(tree)
        if root is None:
            return
        run = root.run
        if run.record.ended_at is not None or run.has_noted(error):
            return
        interrupts = interrupts_of(error)
        if interrupts is None and is_bubble_up(error):
            # LangGraph jumps to a node of the graph above: nothing went wrong.
            return
        kind: StepKind = "other" if interrupts is None else "human_approval"
        name = callback.path[-1] if callback.path else run.record.agent_name
        step = run.step(kind, name=name, metadata=callback.place())
        root.is_waiting = stop_step(step, error)


def _asked_in(state: Any) -> str | None:
    """Return the latest words of the user in the state of a graph; None without messages in it."""
    is_state = isinstance(state, Mapping) and isinstance(state.get("messages"), list)
    return request_text(state) if is_state else None


def _own_tags(tags: Sequence[str] | None) -> dict[str, Any]:
    """Return the user's own tags, without those by which LangChain numbers its parts."""
    own = [tag for tag in tags or () if not tag.startswith(_NUMBERING)]
    return {"tags": own} if own else {}
