"""The hooks of LlamaIndex's dispatcher and callback manager, which pass everything on to their
owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import BoundArguments
from typing import Any, Protocol

from llama_index.core.callbacks import CBEventType
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index_instrumentation.dispatcher import active_instrument_tags
from pydantic import PrivateAttr

from tallystick.kit import Capture
from tallystick.recorder import Run


class Owner(Protocol):
    """What the hooks pass everything on to: a TallyInstrumentation."""

    @property
    def guard_of_hooks(self) -> Capture: ...
    def run_of(self, span_id: str) -> Run | None: ...
    def on_event(self, event: BaseEvent) -> None: ...
    def on_span_start(
        self,
        span_id: str,
        parent_id: str | None,
        instance: Any,
        arguments: BoundArguments,
        tags: Mapping[str, Any],
    ) -> None: ...
    def on_span_end(self, span_id: str, result: Any) -> None: ...
    def on_span_drop(self, span_id: str, error: BaseException | None) -> None: ...
    def refuse_unenforced(self, payload: Mapping[Any, Any]) -> None: ...


class Events(BaseEventHandler):
    """Passes LlamaIndex's events to the instrumentation."""

    _owner: Any = PrivateAttr()

    @classmethod
    def of(cls, owner: Owner) -> Events:
        handler = cls()
        handler._owner = owner
        return handler

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, for LlamaIndex's own serialisation."""
        return "TallyEvents"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Record an event."""
        owner: Owner = self._owner
        with owner.guard_of_hooks(owner.run_of(event.span_id or "")):
            owner.on_event(event)


class Spans(BaseSpanHandler[BaseSpan]):
    """Passes LlamaIndex's spans to the instrumentation, and stores none."""

    _owner: Any = PrivateAttr()

    @classmethod
    def of(cls, owner: Owner) -> Spans:
        handler = cls()
        handler._owner = owner
        return handler

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, for LlamaIndex's own serialisation."""
        return "TallySpans"

    def span_enter(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a call starts."""
        owner: Owner = self._owner
        with owner.guard_of_hooks(owner.run_of(parent_id or "")):
            owner.on_span_start(id_, parent_id, instance, bound_args, tags or _active_tags())

    def span_exit(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a call ends."""
        owner: Owner = self._owner
        with owner.guard_of_hooks(owner.run_of(id_)):
            owner.on_span_end(id_, result)

    def span_drop(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a call failed."""
        owner: Owner = self._owner
        with owner.guard_of_hooks(owner.run_of(id_)):
            owner.on_span_drop(id_, err)

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: no span of LlamaIndex's own is made."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Same as `new_span`."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Same as `new_span`."""


class Refusal(BaseCallbackHandler):
    """Refuses a ruled model call that nothing enforces, before the model is called."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(event_starts_to_ignore=[], event_ends_to_ignore=[])
        self._owner = owner

    def on_event_start(
        self,
        event_type: CBEventType,
        payload: dict[str, Any] | None = None,
        event_id: str = "",
        parent_id: str = "",
        **kwargs: Any,
    ) -> str:
        """Raise ActionDenied for a model call that is to be refused."""
        if event_type is CBEventType.LLM:
            self._owner.refuse_unenforced(payload or {})
        return event_id

    def on_event_end(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def start_trace(self, trace_id: str | None = None) -> None:
        """Do nothing."""

    def end_trace(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def _active_tags() -> Mapping[str, Any]:
    """Return the tags of the context, for a workflow that gives none to its own span."""
    tags: Mapping[str, Any] = active_instrument_tags.get()
    return tags
