"""Compile: the passes one after another, from a request to a compiled context; and what of a
request relevance sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tallystick.compiler.budgeting import budget
from tallystick.compiler.compression import compress
from tallystick.compiler.conflicts import resolve
from tallystick.compiler.dedupe import dedupe
from tallystick.compiler.dependencies import expand
from tallystick.compiler.layout import layout
from tallystick.compiler.normalize import normalize
from tallystick.compiler.policy import decide, recheck
from tallystick.compiler.scoring import score
from tallystick.compiler.state import CONVERSATION, State, is_empty
from tallystick.compiler.validate import validate
from tallystick.ports import TokenCounter
from tallystick.ranking import Text
from tallystick.records import CompilationRequest, CompiledContext, ContextItem

_STEPS: tuple[tuple[str, Callable[[State], State]], ...] = (
    ("validate", validate),
    ("dedupe", dedupe),
    ("dependencies", expand),
    ("conflicts", resolve),
    ("scoring", score),
    ("budgeting", budget),
    ("compression", compress),
    ("policy", recheck),
)

PASSES: tuple[str, ...] = ("normalize", *(name for name, _ in _STEPS), "layout")
"""The passes in the order in which they run. Policy decides first, behind normalize, and checks
again here.
"""


def prepare(request: CompilationRequest) -> State:
    """Return the candidates of a request as items in one order, each as it may be seen: how a
    compile begins, and what relevance is measured of.
    """
    return decide(normalize(State(request=request, count=len)))


def compile_context(
    request: CompilationRequest, *, counter: TokenCounter, prepared: State | None = None
) -> CompiledContext:
    """Choose the best context that fits `request`, with one decision and one reason for each
    candidate.

    Pure: equal requests and equal counters give equal results, byte for byte, whatever the order of
    candidates other than messages. The used tokens, overheads included, never exceed the budget
    less the reserve. `prepared` is what `prepare` made of this request, or of the same one without
    its relevance.

    Raises BudgetInfeasible when required items alone exceed that, InvalidContext when candidates
    contradict one another (an id given twice, a cycle), RequestDenied when policy denies the latest
    request, and SettingsError for a ceiling on an unknown class.
    """
    begun = prepare(request) if prepared is None else prepared
    state = replace(begun, request=request, count=_counted_once(counter))
    for _, step in _STEPS:
        state = step(state)
    return layout(state, token_method=counter.method, token_exact=counter.exact)


def _counted_once(counter: TokenCounter) -> Callable[[str], int]:
    counts: dict[str, int] = {}

    def count(text: str) -> int:
        tokens = counts.get(text)
        if tokens is None:
            tokens = counts[text] = counter.count(text)
        return tokens

    return count


_TALK = "talk"


def all_candidates(request: CompilationRequest) -> tuple[ContextItem, ...]:
    """Return every candidate as an item, memories and tools too, before policy."""
    return normalize(State(request=request, count=len)).candidates


def visible_items(state: State) -> tuple[ContextItem, ...]:
    """Return the candidates of `prepare` that may be seen as they are, in their order."""
    return tuple(item for item_id, item in state.items.items() if item_id not in state.verdicts)


def latest_request(items: tuple[ContextItem, ...], request: CompilationRequest) -> str | None:
    """Return the latest user message, or None if it may not be seen."""
    latest = _latest_id(request)
    return next((item.content for item in items if item.id == latest), None)


def _latest_id(request: CompilationRequest) -> str | None:
    """Return the id of the latest user message; an empty one asks for nothing."""
    messages = (item for item in reversed(request.context_items) if item.kind == "user_msg")
    return next((item.id for item in messages if not is_empty(item)), None)


def searchable_texts(items: tuple[ContextItem, ...], request: CompilationRequest) -> list[Text]:
    """Return the candidates as relevance sees them, without those that are required in any case.

    The current turn is among the latter, so that its messages do not change the prompt before it.
    """
    memories = {memory.id: memory for memory in request.memory_records}
    searchable = []
    latest = _latest_id(request)
    turn = False
    for item in items:
        turn = turn or item.id == latest
        if (
            item.kind in _ALWAYS_IN
            or not item.content.strip()
            or (turn and item.kind in CONVERSATION)
        ):
            continue
        memory = memories.get(item.id)
        conversation, position = None, None
        if item.kind in CONVERSATION:
            conversation = _TALK
        elif memory is not None and memory.conversation is not None:
            conversation, position = f"memory:{memory.conversation}", memory.position
        at = item.known_at
        if memory is not None:
            at = memory.occurred_at
        kind = item.kind if memory is None else memory.kind
        author, source = item.source_ref.author, item.source_ref.uri
        searchable.append(
            Text(item.id, item.content, kind, author, conversation, position, at, source)
        )
    return searchable


_ALWAYS_IN = frozenset({"system", "policy", "tool_schema"})
