"""Keep what was said in a run as turns, each once, and what a tool returned in one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tallystick.costs import measured
from tallystick.errors import InvalidInput, NotFound
from tallystick.loading import late_names
from tallystick.records import (
    Memory,
    NewMemory,
    Remembered,
    SourceRef,
    StepEntry,
)
from tallystick.records.arguments import IdempotencyKey
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal
from tallystick.tally.captured_turns import Captured, TurnsOfRun
from tallystick.tally.memory_view import MemoryView
from tallystick.tally.session_turns import (
    CONTINUES,
    captured_turn,
    newest_exchange,
    scopes_of_session,
    words_of_run,
)

if TYPE_CHECKING:
    from tallystick.recorder import Run, Step
else:
    __getattr__ = late_names("tallystick", {"recorder": "Run Step"})


def keep_turn(
    view: MemoryView,
    run: Run,
    *,
    user: str | None = None,
    assistant: str | None = None,
    unkept_answer: str | None = None,
    observer: str = "application",
    occurred_at: int | None = None,
    idempotency_key: str | None = None,
) -> list[Remembered]:
    """Remember what was said in a run: the user's words and the agent's, as turns.

    The conversation is the thread that the run belongs to, else the run itself. Each turn is
    marked with the run and the last model call in it. Text that a tally supplied, such as
    recalled memories in a prompt, is left out; what is then empty answers `skipped`. What
    another `observer` has stored of this run answers `duplicate`, and the journal names both;
    so does what a hook has kept of the thread before the first run of an adapter in it, and what
    was kept of the run that this one continues. The
    agent's words that are not to be remembered are its `unkept_answer`: they tell this exchange
    from an earlier one with the same request. What was said before it is kept has the time of that,
    `occurred_at`, in microseconds UTC. Raises what `remember_many` does.
    """
    with measured("capture"):
        spoken = {"user": user, "assistant": assistant}
        turns = {
            role: _turn(view, run, role, text, occurred_at)
            for role, text in spoken.items()
            if text is not None and text.strip()
        }
        if idempotency_key is not None:
            # The caller says which call is which.
            key = f"keep_turn {idempotency_key}"
            return view.remember_many(turns.values(), idempotency_key=key) if turns else []
        return _keep_turns(view, run, turns, spoken, unkept_answer, observer)


def _keep_turns(
    view: MemoryView,
    run: Run,
    turns: Mapping[str, NewMemory],
    spoken: Mapping[str, str | None],
    unkept_answer: str | None,
    observer: str,
) -> list[Remembered]:
    """Remember turns that no observer has stored yet."""
    user, assistant = spoken["user"], spoken["assistant"]
    captured = view._services.captured_turns.of(run.id)
    with captured.guard:
        if captured.is_new and turns:
            captured.is_new = False
            _find_kept(view, run, captured, user, assistant or unkept_answer)
        results: dict[str, Remembered] = {}
        new: dict[str, NewMemory] = {}
        for role, turn in turns.items():
            words = captured.words(role, turn.content)
            earlier = captured.see(observer, words)
            if earlier is None:
                key = f"turn {run.id} {words} {captured.number(words)}"
                new[role] = turn.model_copy(update={"idempotency_key": key})
            else:
                _journal_duplicate(view, run, observer, earlier)
                duplicate = {"status": "duplicate"}
                results[role] = earlier.remembered.model_copy(update=duplicate)
        stored = view.remember_many(new.values()) if new else []
        for (role, turn), remembered in zip(new.items(), stored, strict=True):
            results[role] = remembered
            words = captured.words(role, turn.content)
            captured.add(words, Captured(observer, remembered, view.scope))
    return [results[role] for role in turns]


def keep_tool_output(
    view: MemoryView,
    step: Step | str,
    *,
    reason: str,
    kind: str = "artifact",
    idempotency_key: IdempotencyKey = None,
) -> Remembered:
    """Remember what the tool of a recorded step returned, as a memory whose source is the step and
    its entry. It is redacted as every memory is; `reason` says why it is worth keeping, and is kept
    in the source. A text stays as it is, anything else is its JSON.

    Raises NotFound for a step that the actor may not see, and for one without an output or whose
    output was erased or not kept; InvalidInput for a step of another scope; and what `remember`
    does.
    """
    from tallystick.memory.change import require_reason

    require_reason(reason)
    from tallystick.tally.recordings import BoundRecordings

    recordings = BoundRecordings(view)
    record = recordings.step(step if isinstance(step, str) else step.id)
    run = recordings.run(record.run_id)
    if run.scope != view.scope:
        raise InvalidInput(
            f"`step`: {record.id} was recorded in {run.scope}, and this would keep its output in "
            f"{view.scope}. Keep it where it was recorded, and promote it with a preview."
        )
    outputs = [each for each in recordings.entries(record.id) if each.kind == "tool_result"]
    if not outputs:
        raise NotFound(f"Step {record.id} has no tool output.")
    entry = outputs[-1]
    if entry.payload is None:
        raise NotFound(f"The tool output of step {record.id} is not there: {entry.payload_state}.")
    new = NewMemory(
        content=_text_of(entry),
        kind=kind,
        source=SourceRef(
            source_type="tool",
            uri=f"step:{record.id}",
            title=record.name,
            metadata={"entry": entry.id, "reason": reason},
        ),
        source_run_id=run.id,
        source_step_ids=(record.id,),
    )
    # One key means one thing in each verb.
    key = None if idempotency_key is None else f"keep_tool_output {idempotency_key}"
    return view.remember_many([new], idempotency_key=key)[0]


def _text_of(entry: StepEntry) -> str:
    payload = entry.payload
    result = payload.get("result", payload) if isinstance(payload, dict) else payload
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _find_kept(
    view: MemoryView, run: Run, captured: TurnsOfRun, user: str | None, answer: str | None
) -> None:
    """Note what is kept already: of a run that goes on, what was said in the one before it; else
    the turns of the first exchange of a session that a hook has kept.

    That is the newest that the hook has kept, or none: what came before was over. It has the same
    request and, where both are known, the same answer; so the same words said twice are two
    turns. One that was answered when the run began is another exchange, unless the answer is
    the same.
    """
    services, session = view._services, run.record.metadata.get("thread_id")
    if user is None or not isinstance(session, str):
        return
    continued = run.record.metadata.get(CONTINUES)
    if isinstance(continued, str):
        for turn in words_of_run(services.memory, view.actor, view.scope, session, continued):
            said = user if _is_said(view, turn, user) else turn.content
            captured.add(captured.words("user", said), captured_turn(CONTINUES, turn))
        return
    now = services.store.clock.now()
    if not services.sessions.is_new(view.actor, view.scope, session, now=now):
        return
    words = captured.words("user", user)
    answer = answer if answer is not None and answer.strip() else None
    for scope in scopes_of_session(view.actor, view.scope):
        kept = newest_exchange(services.memory, view.actor, scope, session)
        if kept is None or not _is_said(view, kept.request, user):
            continue
        is_same = answer is not None and _is_said(view, kept.answer, answer)
        is_under_way = kept.request.created_at >= run.record.started_at
        if kept.answer is None or is_same or (answer is None and is_under_way):
            captured.add(words, kept.captured_turn(kept.request))
            if is_same and kept.answer is not None and answer is not None:
                captured.add(captured.words("assistant", answer), kept.captured_turn(kept.answer))
            return


def _is_said(view: MemoryView, turn: Memory | None, text: str) -> bool:
    """Return True if a turn has the words of a text, as they are stored: without secrets."""
    if turn is None:
        return False
    from tallystick.memory.secrets import stored_text

    said = stored_text(view._services.memory, turn.scope, text)
    return turn.content.strip() == said.strip()


def _turn(view: MemoryView, run: Run, role: str, text: str, occurred_at: int | None) -> NewMemory:
    thread = run.record.metadata.get("thread_id")
    step = run.latest("model_call")
    is_user = role == "user"
    speaker = view.actor.user if is_user else run.record.agent_name
    return NewMemory(
        content=text,
        kind="turn",
        occurred_at=occurred_at,
        speaker=speaker,
        conversation=thread if isinstance(thread, str) else run.id,
        source=SourceRef(
            source_type="user" if is_user else "other", uri=f"run:{run.id}", author=speaker
        ),
        source_run_id=run.id,
        source_step_ids=() if step is None else (step,),
    )


def _journal_duplicate(view: MemoryView, run: Run, observer: str, earlier: Captured) -> None:
    """Journal that an observer saw a turn which another has stored, where it is stored."""
    store = view._services.store
    event = journal.Event(
        stream=f"scope:{earlier.scope}",
        event="turn.seen_again",
        actor=view._traced_actor,
        at=store.clock.now(),
        audit_id=store.ids.new(),
        subject_id=earlier.remembered.id,
        details={"run": run.id, "observer": observer, "stored_by": earlier.observer},
    )
    store.database.write(
        lambda tx: journal.append(tx, event),
        name="turn.seen_again",
        writes=Writes.of(earlier.scope),
    )
