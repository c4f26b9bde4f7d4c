"""Observers that TallyMiddleware brings along through LangChain's own hook for them.

No middleware is called for an agent that fails, is closed early or hands over to another agent; nor
for a model that another middleware asks again, or for what a tool runs. Callbacks are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import ensure_config
from langchain_core.tracers.context import register_configure_hook

from tallystick.recorder import Step, status_for
from tallystick.records import StepStatus
from tallystick_langchain.graph import interrupts_of, is_bubble_up
from tallystick_langchain.handler import TallyCallbackHandler, handler_run

_NODE = "graph:step:"
"""Beginning of the tag that LangGraph gives a node, and nothing inside of it."""

_recorder: ContextVar[TallyCallbackHandler | None] = ContextVar("tallystick_recorder", default=None)
register_configure_hook(_recorder, inheritable=True)


@contextmanager
def recorded_by(handler: TallyCallbackHandler, step: Step) -> Iterator[None]:
    """Have the handler record what is called inside of a step, unless the application's own handler
    does: the first call of the step's kind takes it over, and each further one is a step of its
    own.
    """
    step.hand_over()
    if handler_run() is not None:
        yield
        return
    token = _recorder.set(handler)
    try:
        with step.run.active():
            yield
    finally:
        _recorder.reset(token)


class AgentEnds(BaseCallbackHandler):
    """Says how the graph of an agent ended. Thread-safe; one serves the process."""

    run_inline = True

    def __init__(self) -> None:
        self._graphs: dict[UUID, UUID] = {}
        """The graph of each chain under way inside of a node."""
        self._endings: dict[UUID, dict[str, Callable[[StepStatus], None]]] = {}

    def watch(self, name: str, end: Callable[[StepStatus], None]) -> bool:
        """Call `end` once if the graph under way is left by an exception, unless it waits for a
        person. Return False where LangChain shows no graph.
        """
        parent = getattr(ensure_config().get("callbacks"), "parent_run_id", None)
        graph = self._graphs.get(parent) if parent is not None else None
        if graph is None:
            return False
        self._endings.setdefault(graph, {})[name] = end
        return True

    @property
    def ignore_llm(self) -> bool:
        """True: only chains matter here."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """True: only chains matter here."""
        return True

    @property
    def ignore_retriever(self) -> bool:
        """True: only chains matter here."""
        return True

    @property
    def ignore_agent(self) -> bool:
        """True: only chains matter here."""
        return True

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the graph of a node, and of the chains inside of it."""
        if parent_run_id is None:
            return
        is_node = any(tag.startswith(_NODE) for tag in tags or ())
        graph = parent_run_id if is_node else self._graphs.get(parent_run_id)
        if graph is not None:
            self._graphs[run_id] = graph

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a chain; a graph that was not left by an exception has ended its run, or waits."""
        self._graphs.pop(run_id, None)
        self._endings.pop(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End what watches a graph."""
        self._graphs.pop(run_id, None)
        endings = self._endings.pop(run_id, {})
        if interrupts_of(error) is None:
            # LangGraph leaves a graph for a node of the one above by an exception too.
            status = "completed" if is_bubble_up(error) else status_for(type(error))
            for end in endings.values():
                end(status)


@cache
def agent_ends() -> AgentEnds:
    """Return the observer of this process, which LangChain's calls have from now on, but for those
    that a TallyCallbackHandler sees: the run is the handler's then.
    """
    ends = AgentEnds()
    context_var: ContextVar[Any] = ContextVar("tallystick_agent_ends", default=ends)
    register_configure_hook(context_var, inheritable=True, handle_class=TallyCallbackHandler)
    return ends
