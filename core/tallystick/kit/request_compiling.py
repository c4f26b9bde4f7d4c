"""Requests of a runtime, compiled: one path from the parts of a request to what is sent.

A piece has the same arguments in every runtime. With `context="request"` the whole request goes
through one compile; with `context="memory"` only what memory adds to it, and the rest stays the
runtime's own. A receipt says which of the two it covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal, TypeAlias, cast

from tallystick.compiler import FRAMED, outline
from tallystick.errors import InvalidInput
from tallystick.kit.arguments import (
    check_config,
    check_count,
    check_rules,
    check_word,
    does_nothing,
)
from tallystick.kit.conversations import AGENT_CONFIG, working_set_for
from tallystick.recorder import Step
from tallystick.records import (
    Compaction,
    CompileConfig,
    CompiledContext,
    ContextItem,
    PolicyRule,
    ToolSpec,
)
from tallystick.tally import BoundTally, Candidate
from tallystick.tally.compiling import record_again
from tallystick.tally.enforcement import refuse_withheld
from tallystick.tally.observed_calls import ObservedCall
from tallystick.tally.services import services_of

ContextMode: TypeAlias = Literal["request", "memory"]
"""The part of a request that is compiled: all of it, or what memory adds."""

REQUEST_BUDGET, MEMORY_BUDGET, MEMORIES = 32_000, 2_000, 3
"""Tokens of a request whose model has no known window, tokens of its memories, and memories that a
turn adds at most, unless others are given.
"""
_MOST_SHARES = {"history_share": 100, "turn_share": 90}


@dataclass(frozen=True, kw_only=True)
class RequestParts:
    """A request of a runtime, as the compiler reads it."""

    items: Sequence[Candidate]
    """System texts and messages in their order, and candidates of the caller's own."""
    tools: Sequence[ToolSpec] = ()
    text: str = ""
    """The latest request of the user, for which memories are recalled."""
    turn: str | None = None
    """The turn that the request belongs to, as `working_set` takes it."""
    conversation: str | None = None
    """The session, whose own turns are among the items: memory leaves them out."""
    namespace: tuple[str, ...] | None = None
    query: str | None = None
    """The text that relevance is measured against; None is the latest request."""
    model: str | None = None
    provider: str | None = None
    window: int | None = None
    """The most tokens that the model reads, where the runtime knows it."""
    reserve: int = 0
    """Tokens of that window which the answer takes."""
    untouched: int = 0
    """Tokens of parts that the compiler cannot see into: they are sent as they are."""
    task_type: str | None = None


class RequestCompiler:
    """Compiles the requests of one piece of an adapter. Thread-safe."""

    def __init__(
        self,
        *,
        context: ContextMode = "request",
        budget: int | None = None,
        reserve: int = 0,
        memory_budget: int = MEMORY_BUDGET,
        memories: int = MEMORIES,
        history_share: int | None = None,
        turn_share: int | None = None,
        compile_config: CompileConfig | None = None,
        compaction: Compaction = "cut",
        rules: Sequence[PolicyRule] = (),
    ) -> None:
        """`budget` is the tokens of a request, `reserve` of which stay free for the answer; by
        default the window of the model, else 32,000. `memory_budget` is the most tokens of what
        memory shows, `memories` the most that a turn adds; 0 shows nothing. The shares are those of
        CompileConfig. `compaction` is that of `compile`. Raises InvalidInput, also for an argument
        that the mode cannot honour.
        """
        check_word("context", context, ContextMode)
        check_word("compaction", compaction, Compaction)
        check_count("reserve", reserve)
        check_count("memory_budget", memory_budget, least=1)
        check_count("memories", memories)
        shares = {"history_share": history_share, "turn_share": turn_share}
        given = {name: share for name, share in shares.items() if share is not None}
        for name, share in given.items():
            check_count(name, share)
            if share > _MOST_SHARES[name]:
                raise InvalidInput(f"`{name}` has to be at most {_MOST_SHARES[name]} percent.")
        if budget is not None:
            check_count("budget", budget, least=1)
            if budget <= reserve:
                raise InvalidInput("`budget` must be more than `reserve`.")
        check_config("compile_config", compile_config)
        check_rules(rules)
        of_request = [*given, *(["budget"] if budget else []), *(["reserve"] if reserve else [])]
        if context == "memory" and of_request:
            raise InvalidInput(
                f"`{of_request[0]}` does nothing with context='memory', which compiles what memory "
                f"adds alone. Leave one of the two out; `memory_budget` limits what is added."
            )
        self.context = context
        self._budget, self._reserve = budget, reserve
        self._memory_budget, self._memories = memory_budget, memories
        self._rules = tuple(rules)
        self._config, self._compaction = compile_config, compaction
        self._shares = given

    @classmethod
    def of(cls, context: ContextMode | bool, **options: Any) -> RequestCompiler | None:
        """Return what compiles requests with these options; None for `context=False`, with which
        an option does nothing. Raises InvalidInput.
        """
        compiler = cls(context="request" if context is False else cast(Any, context), **options)
        if context is not False:
            return compiler
        defaults = signature(cls).parameters
        for name, value in options.items():
            if value != defaults[name].default:
                raise does_nothing(name, "context")
        return None

    @property
    def is_whole(self) -> bool:
        """True if the whole request is compiled."""
        return self.context == "request"

    def compile(self, bound: BoundTally, request: RequestParts) -> CompiledContext:
        """Return the context of a request: all of it, or with `context="memory"` only what memory
        adds, whose text is `memory_text`. Raises as `recall` and `compile`, and ActionDenied for
        what a rule over items keeps from the model and nothing compiles.
        """
        remembered = working_set_for(
            bound,
            request.text,
            conversation=request.conversation,
            turn=request.turn,
            memories=self._memories,
            # A profile may have half of what memory may show: turns come.
            profile_budget=min(bound.tally.settings.profile_budget, self._memory_budget // 2),
            namespace=request.namespace,
        )
        facts: dict[str, Any] = {
            "model": request.model,
            "provider": request.provider,
            "task_type": request.task_type,
            "rules": self._rules,
            "compaction": self._compaction,
        }
        if not self.is_whole:
            plain = [item for item in request.items if isinstance(item, ContextItem)]
            model_facts = {name: facts[name] for name in ("model", "provider", "task_type")}
            refuse_withheld(bound, plain, request.tools, **model_facts)
            return bound.compile(
                remembered.pieces,
                budget=self._memory_budget,
                query=request.query or request.text or None,
                config=self._config,
                target=FRAMED,
                coverage="recalled",
                **facts,
            )
        budget, reserve = self._room(request)
        return bound.compile(
            [*request.items, *remembered],
            budget=budget,
            reserve=reserve,
            query=request.query,
            tools=request.tools,
            config=self._config_for(request),
            # Whatever the compiler cannot choose from is a fixed cost of the request.
            target=FRAMED.replace(per_request=FRAMED.per_request + request.untouched),
            coverage="whole",
            **facts,
        )

    def _room(self, request: RequestParts) -> tuple[int, int]:
        """Return the budget of a request, and the part of it that the answer takes."""
        if self._budget is not None:
            return self._budget, self._reserve
        if request.window is None:
            return max(REQUEST_BUDGET, self._reserve + 1), self._reserve
        reserve = max(self._reserve, min(request.reserve, request.window // 2))
        return request.window, min(reserve, request.window - 1)

    def _config_for(self, request: RequestParts) -> CompileConfig:
        config = self._config or CompileConfig()
        changes: dict[str, int] = dict(self._shares)
        if config.memory_budget is None:
            changes["memory_budget"] = self._memory_budget
        if request.tools and "turn_share" not in {*changes, *config.model_fields_set}:
            changes["turn_share"] = AGENT_CONFIG.turn_share
        return config.model_copy(update=changes)


def note_unsent(bound: BoundTally, messages: Sequence[Any], compiled: CompiledContext) -> None:
    """Note the messages that were made of a context outside of its step: the observer that sees
    them sent records it with `record_sent`.
    """
    services_of(bound).compile_requests.note_unsent(messages, compiled)


def record_sent(bound: BoundTally, messages: Sequence[Any], step: Step) -> None:
    """Record in a model step the context that its messages were made of; nothing for others.
    Raises Denied.
    """
    services = services_of(bound)
    compiled = services.compile_requests.take_sent(messages)
    if compiled is not None and not step.has("compiled"):
        call = ObservedCall(services, bound.actor, bound.scope, step)
        record_again(services, bound.actor, compiled, call, compares=True)


def memory_text(compiled: CompiledContext) -> str:
    """Return what memory adds to a request as one text, framed as data; empty for nothing."""
    sections = outline(compiled)
    return "\n\n".join(filter(None, (sections.remembered, sections.context)))
