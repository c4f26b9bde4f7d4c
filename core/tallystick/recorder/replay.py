"""Replay: make a stored step again, exactly or with changes, and compare the outcome.

An exact replay passes the stored request to the model unchanged and, where the step was compiled,
compiles it once more to check that the same context comes out. A mutated replay compiles anew with
the recipe's changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

from tallystick import compiler
from tallystick.errors import InvalidInput, NotReplayable
from tallystick.policy.rules import check_rules
from tallystick.ports import TokenCounter
from tallystick.recorder.answers import diff_lines
from tallystick.recorder.payloads import plain
from tallystick.recorder.run import Step
from tallystick.records import (
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    Fidelity,
    Json,
    Memory,
    ReplayRecipe,
    ReplayResult,
    RunRecord,
    ScoreWeights,
    StepEntry,
    StepRecord,
    json_bytes,
)

Call = Callable[[Any], Any]
"""A model: a request as JSON values in, its answer out."""

Check = Callable[[CompilationRequest, CompiledContext], None]
"""Raises for a context that is not sent any more."""

Render = Callable[[CompiledContext], Json]
"""Makes the request of a runtime from a compiled context."""


class CheckedCall(NamedTuple):
    """A model that is sent only contexts which pass a check of today."""

    ask: Call
    check: Check

    def __call__(self, request: Any) -> Any:
        """Return the answer of the model. Raises what it raises."""
        return self.ask(request)


def recipe_for(
    step: StepRecord,
    recipe: ReplayRecipe | None,
    changes: Mapping[str, Any],
    *,
    new_id: Callable[[], str],
) -> ReplayRecipe:
    """Return a recipe for this step: the one that is given, which may come from another step, or
    one of these changes. Raises InvalidInput, InvalidRecord.
    """
    if recipe is not None and changes:
        raise InvalidInput(f"Give {', '.join(sorted(changes))} in the recipe, or no recipe.")
    origin = {"source_run_id": step.run_id, "source_step_id": step.id}
    if recipe is not None:
        recipe = recipe.model_copy(update={**origin, "id": recipe.id or new_id()})
    else:
        recipe = ReplayRecipe.load({"id": new_id(), **origin, **changes})
    check_rules(recipe.policy_rules or (), error=InvalidInput, where="replay")
    return recipe


class Replayed(NamedTuple):
    """A replay, and the context that it compiled, if any."""

    result: ReplayResult
    compile_request: CompilationRequest | None = None
    compiled: CompiledContext | None = None

    def record_in(self, step: Step) -> None:
        """Record recipe, comparison, context, request and answer of the replay in `step`."""
        result = self.result
        summary = {
            "replay_id": result.recipe.id,
            "source_step_id": result.recipe.source_step_id,
            "fidelity": result.fidelity,
            "request_matches": result.request_matches,
            "response_matches": result.response_matches,
        }
        comparison = {
            **summary,
            "diff": result.diff,
            "prompt_diff": result.prompt_diff,
            "response_diff": result.response_diff,
            "warnings": result.warnings,
        }
        step.record(
            "note", {"recipe": result.recipe, "comparison": comparison}, summary={"replay": summary}
        )
        if self.compiled is not None and self.compile_request is not None:
            step.set_token_method(self.compiled.token_method)
            step.record(
                "compile_request",
                self.compile_request,
                summary={"budget": self.compile_request.token_budget},
            )
            step.record("compiled", self.compiled, summary={"compiled_id": self.compiled.id})
        step.record("request", result.request)
        if result.response is not None:
            step.record("response", result.response, summary=_call_facts(result.response))


def _call_facts(response: Json) -> dict[str, Json]:
    """Return what the receipt of a replay says of a call that was made: usage, cost, model."""
    if not isinstance(response, dict) or "answer" not in response:
        return {}
    return {name: response[name] for name in ("usage", "cost", "model") if name in response}


_TITLES = {"compiled": "compiled context", "compile_request": "request to compile"}
_ONLY_ADDED = "this is what memory added to the request: the rest of it was not compiled"


def neutral_request(compiled: CompiledContext) -> Json:
    """Return a request in no provider's form: model and items in layout order."""
    return {
        "model": compiled.model,
        "items": [
            {"id": item.id, "kind": item.kind, "content": item.content}
            for item in compiled.selected_items
        ],
    }


def replay(
    run: RunRecord,
    step: StepRecord,
    entries: Sequence[StepEntry],
    recipe: ReplayRecipe,
    *,
    counter: TokenCounter,
    call: Call | None,
    render: Render,
) -> Replayed:
    """Make `step` again by `recipe`. Raises NotReplayable, and all that `call` raises."""
    by_kind: dict[str, StepEntry] = {entry.kind: entry for entry in entries}
    if recipe.is_exact:
        return Replayed(_exact(run, step, by_kind, recipe, counter, call))
    return _replay_with_changes(run, step, by_kind, recipe, counter, call, render)


def _exact(
    run: RunRecord,
    step: StepRecord,
    by_kind: Mapping[str, StepEntry],
    recipe: ReplayRecipe,
    counter: TokenCounter,
    call: Call | None,
) -> ReplayResult:
    request = _payload(run, step, by_kind, "request")
    warnings: list[str] = []
    if "compiled" in by_kind and "compile_request" in by_kind:
        if isinstance(call, CheckedCall):
            call.check(
                CompilationRequest.load(_payload(run, step, by_kind, "compile_request")),
                CompiledContext.load(_payload(run, step, by_kind, "compiled")),
            )
        warnings += _compare_recompiled(run, step, by_kind, counter)
    response = None if call is None else plain(call(json.loads(json.dumps(request))))
    return ReplayResult(
        recipe=recipe,
        fidelity=_fidelity(by_kind),
        request=request,
        response=response,
        # The stored bytes were checked against their commitment when they were read.
        request_matches=True,
        response_matches=_response_matches(by_kind, response) if call is not None else None,
        response_diff=_response_diff(by_kind, response) if call is not None else (),
        warnings=tuple(warnings),
    )


def _compare_recompiled(
    run: RunRecord, step: StepRecord, by_kind: Mapping[str, StepEntry], counter: TokenCounter
) -> list[str]:
    stored = CompiledContext.load(_payload(run, step, by_kind, "compiled"))
    if stored.token_method != counter.method:
        return [
            f"tokens were counted by {stored.token_method} then and by {counter.method} here; "
            f"not recompiled"
        ]
    if by_kind["compile_request"].redactions or by_kind["compiled"].redactions:
        return [
            "secrets were redacted from the stored context, so compiling it again cannot give "
            "the same digest"
        ]
    request = CompilationRequest.load(_payload(run, step, by_kind, "compile_request"))
    again = compiler.compile_context(request, counter=counter)
    if again.id == stored.id:
        return []
    return [f"compiling again gave {again.id}, the receipt says {stored.id}"]


def _replay_with_changes(
    run: RunRecord,
    step: StepRecord,
    by_kind: Mapping[str, StepEntry],
    recipe: ReplayRecipe,
    counter: TokenCounter,
    call: Call | None,
    render: Render,
) -> Replayed:
    before = CompiledContext.load(_payload(run, step, by_kind, "compiled"))
    original = CompilationRequest.load(_payload(run, step, by_kind, "compile_request"))
    changed = _change_request(original, recipe)
    after = compiler.compile_context(changed, counter=counter)
    if isinstance(call, CheckedCall):
        call.check(changed, after)
    request = plain(render(after))
    response = None if call is None else plain(call(json.loads(json.dumps(request))))
    warnings = [] if before.coverage != "recalled" else [_ONLY_ADDED]
    if before.token_method != counter.method:
        warnings.append(
            f"tokens were counted by {before.token_method} then and by {counter.method} here"
        )
    result = ReplayResult(
        recipe=recipe,
        fidelity=_fidelity(by_kind),
        request=request,
        response=response,
        request_matches=None,
        response_matches=_response_matches(by_kind, response) if call is not None else None,
        response_diff=_response_diff(by_kind, response) if call is not None else (),
        diff=compiler.diff_compiled(before, after),
        prompt_diff=tuple(_prompt_diff(before, after)),
        warnings=tuple(warnings),
    )
    return Replayed(result, changed, after)


def _prompt_diff(before: CompiledContext, after: CompiledContext) -> Iterator[str]:
    old, new = (compiler.prompt_text(compiled).splitlines() for compiled in (before, after))
    return unified_diff(old, new, "recorded", "recompiled", lineterm="", n=1)


def _change_request(request: CompilationRequest, recipe: ReplayRecipe) -> CompilationRequest:
    candidate_ids = {item.id for item in request.context_items} | {
        memory.id for memory in request.memory_records
    }
    unknown = sorted(set(recipe.context_mutations) - candidate_ids)
    if unknown:
        raise InvalidInput(
            f"{', '.join(unknown)} did not stand in this step's context; nothing to change."
        )
    memory_records = _from_elsewhere(request.memory_records, recipe.without_sources)
    items = tuple(
        item
        if (content := recipe.context_mutations.get(item.id, item.content)) == item.content
        else item.model_copy(
            update={"content": content, "stable_hash": None, "token_estimate": None}
        )
        for item in request.context_items
        if recipe.context_mutations.get(item.id, item.content) is not None
    )
    memories = tuple(
        memory.model_copy(
            update={"content": recipe.context_mutations.get(memory.id, memory.content)}
        )
        for memory in memory_records
        if recipe.context_mutations.get(memory.id, memory.content) is not None
    )
    changes: dict[str, Any] = {"context_items": items, "memory_records": memories}
    overrides = {
        "provider": recipe.provider_override,
        "model": recipe.model_override,
        "token_budget": recipe.token_budget,
        "response_reserve": recipe.response_reserve,
        "compile_config": _config(request, recipe),
        "policy_rules": recipe.policy_rules,
    }
    changes |= {name: value for name, value in overrides.items() if value is not None}
    return request.model_copy(update=changes)


def _config(request: CompilationRequest, recipe: ReplayRecipe) -> CompileConfig | None:
    """Return the configuration of the recipe with its weights; None where it changes neither."""
    if not recipe.score_weights:
        return recipe.compile_overrides
    config = recipe.compile_overrides or request.compile_config
    unknown = sorted(set(recipe.score_weights) - set(ScoreWeights.model_fields))
    if unknown:
        raise InvalidInput(
            f"{', '.join(unknown)}: there is no such score weight; there are "
            f"{', '.join(ScoreWeights.model_fields)}."
        )
    weights = ScoreWeights.load({**config.weights.dump(), **recipe.score_weights})
    return config.model_copy(update={"weights": weights})


def _from_elsewhere(memories: Sequence[Memory], sources: Sequence[str]) -> list[Memory]:
    """Return the memories that come from none of these sources."""
    excluded = set(sources)
    source_ids = {source.source_id for memory in memories for source in memory.sources}
    if unknown := sorted(excluded - source_ids):
        raise InvalidInput(
            f"No memory in this step's context comes from {', '.join(unknown)}; nothing to leave "
            f"out."
        )
    return [
        memory
        for memory in memories
        if excluded.isdisjoint(source.source_id for source in memory.sources)
    ]


def _payload(run: RunRecord, step: StepRecord, by_kind: Mapping[str, StepEntry], kind: str) -> Any:
    entry = by_kind.get(kind)
    if entry is None:
        raise NotReplayable(
            step.id,
            retention=run.retention,
            missing=f"it recorded no {_TITLES.get(kind, kind)}",
            hint="Choose a step that did.",
        )
    if entry.payload_state in {"not_kept", "erased"}:
        raise NotReplayable(
            step.id,
            retention=run.retention,
            missing=f"its {_TITLES.get(kind, kind)} was {entry.payload_state.replace('_', ' ')}",
        )
    return entry.payload


def _fidelity(by_kind: Mapping[str, StepEntry]) -> Fidelity:
    request = by_kind.get("request") or by_kind.get("compile_request")
    return "exact_redacted" if request is not None and request.redactions else "exact"


def _response_matches(by_kind: Mapping[str, StepEntry], response: Json) -> bool:
    recorded = by_kind.get("response")
    return recorded is not None and json_bytes(_answer_of(recorded.payload)) == json_bytes(
        _answer_of(response)
    )


def _response_diff(by_kind: Mapping[str, StepEntry], response: Json) -> tuple[str, ...]:
    recorded = by_kind.get("response")
    if recorded is None or recorded.payload is None:
        return ()
    return tuple(diff_lines(_answer_of(recorded.payload), _answer_of(response)))


def _answer_of(response: Json) -> Json:
    """Return the answer of a model without its envelope: ids, times and usage differ from call to
    call.
    """
    return response["answer"] if isinstance(response, dict) and "answer" in response else response
