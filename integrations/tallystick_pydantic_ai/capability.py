"""The Tallystick capability: recorder, memory tools, recalled context and rules, as leaves of one.

The recorder must be the outermost capability, and the policy the innermost; the tools have no
order.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic_ai import RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    CombinedCapability,
)
from pydantic_ai.messages import (
    ModelRequest,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import AbstractToolset

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.kit import (
    MEMORIES,
    MEMORY_BUDGET,
    ActorSource,
    Binder,
    ContextMode,
    RequestCompiler,
    RequestParts,
    Speakers,
    check_flag,
)
from tallystick.kit.arguments import refuse_unused
from tallystick.kit.binder import id_text
from tallystick.kit.rendering import without_frames
from tallystick.operations import NOTICE
from tallystick.records import Compaction, CompileConfig, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_pydantic_ai.actors import call_of_run
from tallystick_pydantic_ai.deferral import Approval
from tallystick_pydantic_ai.messages import (
    own_messages,
    prompt_part,
    prompt_text,
    with_part_behind,
)
from tallystick_pydantic_ai.policy import (
    EVERY_ATTEMPT,
    OncePerAgent,
    TallyPolicy,
    model_facts,
    refuse_deferred,
    window_of,
)
from tallystick_pydantic_ai.recorder import LOADED_LATE, TallyRecorder
from tallystick_pydantic_ai.render import NOTHING, added_parts, read_request, render
from tallystick_pydantic_ai.toolset import memory_toolset


@dataclass(repr=False)
class TallyMemory(OncePerAgent):
    """Offers the six memory tools, with instructions on memory text."""

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    scope: str | Scope | None = None
    approval: Approval = "auto"
    """Agents to which the tools that ask a person are offered; see `memory_toolset`."""
    working: bool = False
    """True to let the model keep its task and plan, by `memory_working`."""
    id: str | None = "tallystick"

    def __post_init__(self) -> None:
        self._binder = Binder(
            self.tally,
            runtime="pydantic_ai",
            piece="TallyMemory",
            actor=self.actor,
            scope=self.scope,
        )
        # One for all runs, so that what it has to say is said once.
        self._toolset = memory_toolset(
            self.tally,
            actor=self.actor,
            scope=self.scope,
            approval=self.approval,
            working=self.working,
        )

    def get_instructions(self) -> str:
        """Return static text, so that the prompt's prefix stays the same."""
        return (
            "You have a long-term memory: search it before you ask for what may be known, and "
            "store what should be "
            f"known next time. {NOTICE}"
        )

    def get_toolset(self) -> AbstractToolset[Any]:
        """Return the memory tools."""
        return self._toolset


@dataclass(repr=False)
class TallyContext(OncePerAgent):
    """Compiles each request to a budget: instructions, history, tools, and what is remembered.

    The history of the run stays as it is: what was recalled stands in its requests alone, framed as
    data, without the frames of earlier turns. Innermost but for the policy, so that it compiles
    what all other capabilities left.
    """

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    scope: str | Scope | None = None
    context: ContextMode = "request"
    """The part of a request that is compiled: all of it, or what memory adds."""
    budget: int | None = None
    """Tokens of a request; by default the window of the model, else 32,000."""
    memory_budget: int = MEMORY_BUDGET
    """Most tokens of recalled text."""
    memories: int = MEMORIES
    """Number of memories that are recalled to choose from."""
    history_share: int | None = None
    turn_share: int | None = None
    compile_config: CompileConfig | None = None
    compaction: Compaction = "cut"
    """What becomes of long memories that do not fit: `summary` takes theirs, where there is one."""
    task_type: str | None = None
    """Kind of task, as rules over items know it."""
    id: str | None = "tallystick_context"

    def __post_init__(self) -> None:
        self._binder = Binder(
            self.tally,
            runtime="pydantic_ai",
            piece="TallyContext",
            actor=self.actor,
            scope=self.scope,
        )
        refuse_deferred(self, "A context that is loaded late compiles nothing")
        self._compiler = RequestCompiler(
            context=self.context,
            budget=self.budget,
            memory_budget=self.memory_budget,
            memories=self.memories,
            history_share=self.history_share,
            turn_share=self.turn_share,
            compile_config=self.compile_config,
            compaction=self.compaction,
        )
        self._added = NOTHING

    async def for_run(self, ctx: RunContext[Any]) -> TallyContext:
        """Return a copy for one run, to which memory has added nothing yet."""
        return replace(self)

    def get_ordering(self) -> CapabilityOrdering:
        """Return the innermost place but that of the policy, which checks what is sent."""
        return CapabilityOrdering(position="innermost", wraps=[TallyPolicy])

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Compile a request, where there is one attempt at each."""
        return request_context if EVERY_ATTEMPT else await self._compiled(ctx, request_context)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Compile a request at each attempt, for the model that it goes to."""
        return await self._compiled(ctx, request_context)

    async def _compiled(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        # The recorder is outermost, so that the step of this request is open, and the compile is
        # part of it.
        return await in_thread(self._compile, ctx, request_context)

    def _compile(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request to send. Raises ApprovalRequired, ActionDenied, CompileError."""
        bound = self._binder.bound(call_of_run(self._binder, ctx))
        own_text = partial(without_frames, bound)
        prompt = prompt_part(request_context.messages, ctx.run_id, own_text)
        messages = own_messages(
            request_context.messages, own_text=own_text, run_id=ctx.run_id, prompt=prompt
        )
        provider, model = model_facts(request_context.model)
        count, parameters = (
            bound.tally.counter(model).count,
            request_context.model_request_parameters,
        )
        request = read_request(messages, parameters, count, prompt=prompt)
        # A run that goes on without a prompt answers the latest one of the conversation.
        latest = None if prompt is None else prompt.content
        parts = RequestParts(
            items=request.items,
            tools=request.tools,
            text=prompt_text(ctx.prompt or latest) or "",
            turn=str(ctx.run_id),
            conversation=id_text(getattr(ctx, "conversation_id", None)),
            model=model,
            provider=provider,
            window=window_of(request_context.model),
            reserve=(request_context.model_settings or {}).get("max_tokens") or 0,
            untouched=request.untouched(count),
            task_type=self.task_type,
        )
        compiled = self._compiler.compile(bound, parts)
        added = self._added = added_parts(compiled, self._added, whole=self._compiler.is_whole)
        if not self._compiler.is_whole:
            if added.context is not None:
                messages = with_part_behind(messages, prompt, added.context)
            # A list of its own goes to the model alone.
            return replace(request_context, messages=messages)
        rendered = render(compiled, request, messages, parameters, added)
        # A prompt without a word is no candidate, and yet no request is without a message.
        messages = rendered.messages or [ModelRequest(parts=[UserPromptPart("")])]
        return replace(
            request_context,
            messages=messages,
            model_request_parameters=rendered.parameters,
        )


def Tallystick(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    agent_name: str | None = None,
    record: bool = True,
    tools: bool = True,
    context: ContextMode | Literal[False] = "request",
    rules: bool = True,
    task_type: str | None = None,
    approval: Approval = "auto",
    working: bool = False,
    budget: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
    memories: int = MEMORIES,
    history_share: int | None = None,
    turn_share: int | None = None,
    compile_config: CompileConfig | None = None,
    compaction: Compaction = "cut",
    strict: bool = False,
    capture: Speakers = "off",
) -> CombinedCapability[Any]:
    """Memory, context and receipts for an agent: `Agent(model, capabilities=[Tallystick(tally)])`.

    `context` compiles each request to `budget` tokens, by default the window of the model, else
    32,000, with the best of `memories` recalled ones in at most `memory_budget`;
    `context="memory"` leaves all but these as it is, and False compiles nothing.
    `compaction="summary"` shortens memories by their summaries. `tools` offers the
    six memory tools; the two that ask a person need `DeferredToolRequests` in the agent's
    `output_type`, and are left out otherwise (`approval`, see `memory_toolset`); with `working` the
    model keeps its task and plan too. `record` makes receipts, and with `strict` a failure to
    record is raised. `capture` remembers the words of the `user`, or those of `both`, when a run
    ends; a typed output is remembered as its JSON text. `rules` enforces the rules of the tally
    over tool and model calls. `task_type` states the kind of task for all rules. Raises
    InvalidInput for an argument of a part that is switched off.
    """
    binder = Binder(tally, runtime="pydantic_ai", piece="Tallystick", actor=actor, scope=scope)
    switches = {"record": record, "tools": tools, "rules": rules}
    for name, switch in switches.items():
        check_flag(name, switch)
    switches["context"] = context is not False
    if not any(switches.values()):
        raise InvalidInput("Tallystick() with every part switched off does nothing. Leave it out.")
    refuse_unused(
        switches,
        record={"agent_name": agent_name, "strict": strict, "capture": capture != "off"},
        tools={"approval": approval != "auto", "working": working},
        rules={"task_type": task_type},
    )
    options: dict[str, Any] = {
        "budget": budget,
        "memory_budget": memory_budget,
        "memories": memories,
        "history_share": history_share,
        "turn_share": turn_share,
        "compile_config": compile_config,
        "compaction": compaction,
    }
    if context is False:
        RequestCompiler.of(False, **options)
    leaves: list[AbstractCapability[Any]] = []
    if record:
        leaves.append(
            TallyRecorder(
                tally,
                actor=actor,
                scope=scope,
                agent_name=agent_name,
                strict=strict,
                capture=capture,
            )
        )
    if tools:
        leaves.append(
            TallyMemory(tally, actor=actor, scope=scope, approval=approval, working=working)
        )
    if context is not False:
        leaves.append(
            TallyContext(
                tally,
                actor=actor,
                scope=scope,
                context=context,
                task_type=task_type,
                **options,
            )
        )
    if rules:
        leaves.append(TallyPolicy(tally, actor=actor, scope=scope, task_type=task_type))
    off = {name: False for name, switch in switches.items() if not switch}
    return _Leaves(
        leaves,
        description_of_parts=binder.describe(
            **off, agent_name=agent_name, capture=None if capture == "off" else capture
        ),
    )


@dataclass(repr=False)
class _Leaves(CombinedCapability[Any]):
    """The leaves as one capability, which must not be loaded late."""

    description_of_parts: str = "Tallystick()"
    """The line that made it, for `repr`."""

    def __repr__(self) -> str:
        return self.description_of_parts

    def __post_init__(self) -> None:
        refuse_deferred(self, LOADED_LATE)
        super().__post_init__()
