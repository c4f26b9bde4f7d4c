"""Runs of agents under way: what the pieces that stand around whole runs of a runtime have alike.

A runner or a plugin takes the settings of an `AgentPiece`. For each run of the runtime it makes an
`AgentRun`, which compiles, checks and records the requests to models, checks and records the calls
of tools, keeps the turn, and ends the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tallystick.errors import ApprovalRequired
from tallystick.kit.arguments import check_flag, refuse_unused
from tallystick.kit.binder import ActorSource, Binder
from tallystick.kit.call_tree import UNNAMED_AGENT, OpenCall, RootRun, begin_call
from tallystick.kit.capture import Capture, Speakers, checked_speakers, is_nested
from tallystick.kit.enforcement import (
    decide_as_person,
    has_rules,
    is_denial,
    refuse_unenforced,
    refuse_unenforced_model_call,
    register_enforcer,
    rules_requests,
)
from tallystick.kit.laying_out import Count, ReadRequest
from tallystick.kit.rendering import (
    ToolCall,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    without_frames,
)
from tallystick.kit.request_compiling import (
    MEMORIES,
    MEMORY_BUDGET,
    ContextMode,
    RequestCompiler,
    RequestParts,
)
from tallystick.recorder import Run, status_for
from tallystick.records import (
    Compaction,
    CompileConfig,
    CompiledContext,
    Scope,
    StepKind,
    StepStatus,
)
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick.tally.call_rules import CallKind

_KINDS: tuple[CallKind, ...] = ("tool_call", "model_call")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run, as its piece was given them."""

    piece: str
    """The name of the piece, as rules and receipts have it."""
    guard: Capture
    capture: Speakers = "off"
    agent_name: str | None = None
    records: bool = True
    rules: bool = True
    """True if the piece enforces the rules of the tally; else it refuses what nothing enforces."""
    task_type: str | None = None
    compiler: RequestCompiler | None = None


class AgentPiece:
    """A piece that stands around the runs of a runtime."""

    _runtime: str
    _piece: str
    """The name of the class, as rules and receipts have it."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        agent_name: str | None = None,
        record: bool = True,
        context: ContextMode | bool = "request",
        rules: bool = True,
        task_type: str | None = None,
        budget: int | None = None,
        memory_budget: int = MEMORY_BUDGET,
        memories: int = MEMORIES,
        history_share: int | None = None,
        turn_share: int | None = None,
        compile_config: CompileConfig | None = None,
        compaction: Compaction = "cut",
        strict: bool = False,
        capture: Speakers = "off",
    ) -> None:
        """`actor` says who acts, by default whom the run names. `context="memory"` leaves all of a
        request but the memories as it is, and False compiles nothing; the budgets are those of the
        other runtimes. `record` makes receipts, and with `strict` a failure to record is raised.
        `capture` remembers the words of the `user`, or those of `both`, when a run ends. `rules`
        enforces the rules of the tally; `task_type` states the kind of task for them. Raises
        InvalidInput for an argument of a part that is switched off.
        """
        self.binder = Binder(
            tally, runtime=self._runtime, piece=self._piece, actor=actor, scope=scope
        )
        switches = {"record": record, "rules": rules}
        for name, switch in {**switches, "strict": strict}.items():
            check_flag(name, switch)
        refuse_unused(
            switches,
            record={"agent_name": agent_name, "strict": strict, "capture": capture != "off"},
            rules={"task_type": task_type},
        )
        compiler = RequestCompiler.of(
            context,
            budget=budget,
            memory_budget=memory_budget,
            memories=memories,
            history_share=history_share,
            turn_share=turn_share,
            compile_config=compile_config,
            compaction=compaction,
        )
        self.settings = RunSettings(
            self._piece,
            Capture(self.binder.tally, self._runtime, strict=strict),
            checked_speakers(capture),
            agent_name,
            record,
            rules,
            task_type,
            compiler,
        )
        self.asked: dict[str, str] = {}
        """The approval that each call of a tool waits for, by the id of the call."""

    def __repr__(self) -> str:
        return self.binder.describe(agent_name=self.settings.agent_name)

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self.settings.guard.failures


class AgentRequest(ABC):
    """A request to a model, in the form of its runtime."""

    provider: str | None
    model: str | None
    """The provider and the model that are asked, as far as they are known."""

    @abstractmethod
    def read(self, count: Count = len) -> ReadRequest:
        """Return the request as the compiler reads it."""

    @abstractmethod
    def render(self, compiled: CompiledContext, read: ReadRequest) -> None:
        """Become the request of a compiled context. Raises InvalidContext for calls and results
        that do not pair.
        """

    @abstractmethod
    def add_memory(self, compiled: CompiledContext) -> None:
        """Take in what memory adds, and change nothing else."""

    @abstractmethod
    def clean(self, clean: Callable[[Any], Any]) -> None:
        """Clean each text; what the session keeps stays as it is."""

    @abstractmethod
    def recorded(self) -> dict[str, Any]:
        """Return the request as it is recorded: without headers, keys and connections."""

    def compared(self) -> Any:
        """Return the form that an approval is bound to."""
        return self.recorded()


class Answer(NamedTuple):
    """The answer of a person to a call that waited, as the runtime brought it."""

    approved: bool
    reason: str


class AgentRun:
    """One run of a runtime. Its calls may come from several tasks at once."""

    def __init__(
        self, settings: RunSettings, bound: BoundTally, *, words: str | None, session: str | None
    ) -> None:
        """`words` are what the user said, `session` the session that the run belongs to."""
        self.settings, self.bound, self.words, self.session = settings, bound, words, session
        self.id = bound.tally.new_id()
        self.guard = settings.guard
        self.root: RootRun | None = None
        self.is_nested = is_nested()
        if settings.rules:
            for kind in _KINDS:
                if has_rules(bound, kind):
                    register_enforcer(bound, kind, settings.piece)

    @property
    def run(self) -> Run | None:
        """The run of the tally; None where nothing is recorded."""
        return None if self.root is None else self.root.run

    def join(self, agent: str, *, goal: str | None = None, **metadata: Any) -> None:
        """Begin a run of the tally for an agent, or join that under way. The goal is by default
        what the user said.
        """
        thread = {"thread_id": self.session} if self.session else {}
        self.root = RootRun.join(
            self.bound, agent, goal=goal or self.words, metadata={**thread, **metadata}
        )

    def start(self, agent: str | None, **metadata: Any) -> None:
        """Begin to record the run, unless nothing is recorded."""
        if self.settings.records:
            with self.guard():
                self.join(self.settings.agent_name or agent or UNNAMED_AGENT, **metadata)

    @contextmanager
    def active(self, call: OpenCall | None = None) -> Iterator[None]:
        """Make the run, and the step of a call, those of the code inside."""
        with ExitStack() as stack:
            if self.run is not None:
                stack.enter_context(self.run.active())
            if call is not None:
                stack.enter_context(call.step.active())
            yield

    def begin(self, kind: StepKind, name: str | None, **metadata: Any) -> OpenCall | None:
        """Open the step of a call; None where nothing is recorded, or it cannot be."""
        if self.run is not None:
            with self.guard(self.run), self.run.active():
                return begin_call(self.run, kind, name=name, metadata=metadata)
        return None

    # Requests to models

    def begin_request(self, request: AgentRequest, **metadata: Any) -> OpenCall | None:
        """Open the step of a request."""
        call = self.begin("model_call", request.model, **metadata)
        if call is not None:
            call.provider, call.model = request.provider, request.model
        return call

    def prepare(
        self, request: AgentRequest, call: OpenCall | None, *, text: str, turn: str, reserve: int
    ) -> None:
        """Compile, check and record a request: `text` is what the user asks for in it, `reserve`
        the tokens that its answer takes. Raises ActionDenied, ApprovalRequired, CompileError.
        """
        with self.active(call):
            if self.settings.compiler is not None:
                self._compile(self.settings.compiler, request, text, turn, reserve)
            try:
                self._check(request)
            finally:
                # A request that is refused is kept as it was asked for.
                if call is not None:
                    self._record(call, request)

    def _compile(
        self, compiler: RequestCompiler, request: AgentRequest, text: str, turn: str, reserve: int
    ) -> None:
        count = self.bound.tally.counter(request.model).count
        read = request.read(count)
        parts = RequestParts(
            items=read.items,
            tools=read.tools,
            text=text,
            turn=turn,
            conversation=self.session,
            model=request.model,
            provider=request.provider,
            reserve=reserve,
            untouched=read.untouched(count),
            task_type=self.settings.task_type,
        )
        compiled = compiler.compile(self.bound, parts)
        if compiler.is_whole:
            request.render(compiled, read)
        else:
            request.add_memory(compiled)

    def _check(self, request: AgentRequest) -> None:
        bound, settings = self.bound, self.settings
        if not rules_requests(bound):
            return
        parts = request.read().for_rules(partial(without_frames, bound))
        facts: dict[str, Any] = {"provider": request.provider, "model": request.model, **parts}
        if not settings.rules:
            refuse_unenforced_model_call(bound, call_id=self.id, **facts)
            return
        check = bound.check_model_call(
            piece=settings.piece,
            request=request.compared(),
            task_type=settings.task_type,
            **facts,
        )
        if check.redacts:
            request.clean(check.clean)

    def _record(self, call: OpenCall, request: AgentRequest) -> None:
        with self.guard(call.step.run):
            recorded = request.recorded()
            asked = {} if request.provider is None else {"provider": request.provider}
            count = len(recorded["messages"])
            summary = {"model": request.model, **asked, "messages": count}
            call.step.record("request", recorded, summary=summary)

    # Calls of tools

    def begin_tool(
        self, call: ToolCall, *, approved: bool = False, **metadata: Any
    ) -> OpenCall | None:
        """Open the step of a call; `approved` is True if a person allowed it."""
        opened = self.begin("tool_call", call.name, **metadata)
        if opened is not None:
            with self.guard(self.run):
                record_tool_call(opened.step, call, approved=approved)
        return opened

    def check_tool(
        self, call: ToolCall, answer: Answer | None = None, *, enforced: bool | None = None
    ) -> AllowedToolCall | None:
        """Check a call, which `answer` may grant or deny; None where no rule is over tools. Unless
        it is `enforced`, by default as the settings say, one that a rule concerns is refused.
        Raises ActionDenied, ApprovalRequired, Denied, InvalidInput.
        """
        bound, settings = self.bound, self.settings
        if not has_rules(bound, "tool_call"):
            return None
        if not (settings.rules if enforced is None else enforced):
            refuse_unenforced(bound, call)
            return None
        while True:
            try:
                return bound.check_tool_call(
                    call.name,
                    call.arguments,
                    tool_call_id=call.tool_call_id,
                    piece=settings.piece,
                    task_type=settings.task_type,
                )
            except ApprovalRequired as error:
                if answer is None:
                    raise
                decide_as_person(
                    bound, error.approvals, approved=answer.approved, reason=answer.reason
                )
                # An equal call beside it may use up what was granted to both: each has a try.
                answer = None if error.new else answer

    def wait_tool(self, call: ToolCall, opened: OpenCall | None) -> None:
        """Record that a call waits for a person."""
        if opened is not None:
            with self.guard(self.run):
                if not opened.step.has("approval"):
                    record_approval(opened.step, call)
                opened.end("blocked")

    def fail_tool(self, opened: OpenCall | None, error: BaseException) -> str | None:
        """Record the error of a call; return what the model reads of a denial, and None for any
        other error.
        """
        denial = str(error) if is_denial(error) else None
        self.tell_tool(opened, error, denial)
        return denial

    def tell_tool(self, opened: OpenCall | None, error: BaseException, text: str | None) -> None:
        """Record the error of a call, of which the model is told by `text`."""
        if opened is not None:
            with self.guard(self.run):
                if text is None:
                    opened.fail(error)
                else:
                    record_tool_error(opened.step, error, text)
                    opened.end("failed")

    def end_tool(self, opened: OpenCall | None, result: Any, **more: Any) -> None:
        """Record the result of a call."""
        if opened is not None:
            with self.guard(self.run):
                record_tool_result(opened.step, result, **more)
                opened.end()

    # The end

    def keep_turn(self, answer: str | None, *, is_continued: bool = False) -> None:
        """Remember the words of the turn, if they are to be remembered. A run that `is_continued`
        goes on with words that were kept.
        """
        speakers = self.settings.capture
        if self.run is not None and speakers != "off" and not self.is_nested:
            with self.guard(self.run):
                self.bound.keep_turn(
                    self.run,
                    user=None if is_continued else self.words,
                    assistant=answer if speakers == "both" else None,
                    unkept_answer=answer,
                    observer=self.settings.piece,
                )

    def fail(self, error: BaseException) -> None:
        """End the run with an error, and wait until it is stored."""
        run, status = self.run, status_for(type(error))
        if run is None or self.root is None:
            return
        # A runtime may put an error that a piece raises into one of its own.
        is_noted = run.has_noted(error) or run.has_noted(error.__cause__ or error)
        if self.root.is_own and status == "failed" and not is_noted:
            with self.guard(run):
                run.step("other", name=run.record.agent_name).fail(error)
        self.end(status)

    def end(self, status: StepStatus) -> None:
        """End the run, if it is our own, and wait until it is stored."""
        if self.root is not None and self.root.is_own:
            with self.guard(self.root.run):
                self.root.run.end(status)
