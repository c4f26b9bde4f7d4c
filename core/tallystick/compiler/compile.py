"""Compile: the passes one after another, from a request to a compiled context."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.compiler.budgeting import budget
from tallystick.compiler.compression import compress
from tallystick.compiler.conflicts import resolve
from tallystick.compiler.dedupe import dedupe
from tallystick.compiler.dependencies import expand
from tallystick.compiler.layout import layout
from tallystick.compiler.normalize import normalize
from tallystick.compiler.policy import recheck
from tallystick.compiler.scoring import score
from tallystick.compiler.state import State
from tallystick.compiler.validate import validate
from tallystick.ports import TokenCounter
from tallystick.records import CompilationRequest, CompiledContext

_STEPS: tuple[tuple[str, Callable[[State], State]], ...] = (
    ("normalize", normalize),
    ("validate", validate),
    ("dedupe", dedupe),
    ("dependencies", expand),
    ("conflicts", resolve),
    ("scoring", score),
    ("budgeting", budget),
    ("compression", compress),
    ("policy", recheck),
)

PASSES: tuple[str, ...] = (*(name for name, _ in _STEPS), "layout")
"""The passes in the order in which they run. Policy decides first, within validate, and checks
again here.
"""


def compile_context(request: CompilationRequest, *, counter: TokenCounter) -> CompiledContext:
    """Choose the best context that fits `request`, with one decision and one reason for each
    candidate.

    Pure: equal requests and equal counters give equal results, byte for byte, whatever the order of
    candidates other than messages. The used tokens, overheads included, never exceed the budget
    less the reserve.

    Raises BudgetInfeasible when required items alone exceed that, InvalidContext when candidates
    contradict one another (an id given twice, a cycle), RequestDenied when policy denies the latest
    request, and SettingsError for a ceiling on an unknown class.
    """
    state = State(request=request, count=_counted_once(counter))
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
