"""Answering events on a bound tally: recall and wake for the prompt, rules for tools, the record.

What was recalled and what a rule refused is recorded. A failure leaves the agent alone, and is
recorded as a gap; before a tool, where rules are installed, it stops the tool instead.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from tallystick.errors import (
    ApprovalRequired,
    Blocked,
    RecorderError,
    StorageError,
    TallystickError,
)
from tallystick.kit import (
    OBSERVER,
    SPOOLED,
    EventClaim,
    ToolCall,
    answer_claim,
    claim_event,
    claimed_answer,
    framed_pieces,
    has_rules,
    json_value,
    note_seen_again,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    recorded_elsewhere,
    working_set_for,
)
from tallystick.operations import error_json, require_kind_of_models
from tallystick.records import RunRecord
from tallystick.records.canonical import digest, text_digest
from tallystick.tally import BoundTally, Tally
from tallystick_hooks.events import Answer, Event, HookFormat, HookPath
from tallystick_hooks.formats import answer_in, event_from
from tallystick_hooks.quick import DECIDING

__all__ = ["answer_event", "handle", "has_told", "note_failure", "react"]

SURFACE = "hook"
_MEMORIES = 3
"""Memories that a prompt adds at most."""
_SECONDS, _PAUSE = 10.0, 0.05
"""Seconds to wait for the decision of the path that was asked first, and between two looks."""
_DIRECT = "direct"
"""The path of an event that names none."""
_RUNS = 200
"""Runs that are looked at, the newest."""
_RECORDS = ("after-tool", "subagent-end")
"""Events that are recorded once, by whoever tells of them."""
_MOST, _MOST_AT_END = {"turn-end": 20}, 400
"""Turns that are looked at, the newest: after a turn those before are kept already."""


def handle(
    bound: BoundTally,
    event: str | None,
    payload: Any,
    format: HookFormat = "neutral",
    path: HookPath | None = None,
) -> dict[str, Any]:
    """Return the answer to an event in its format, for a hook that is answered by a server.

    Raises BadPayload for an input that is none; every failure beside it is an answer.
    """
    of_session = event_from(payload, event, format, path)
    return answer_in(react(bound, of_session), of_session, format)


def answer_event(tally: Tally, event: Event, *, boundary: str | None, agent: str | None) -> Answer:
    """Return the answer to an event of a process that only hooks have: the tally's owner acts, and
    the retention of the day is kept at the end of a session. Raises InvalidScope, Denied, and for
    an event of the spool what `react` raises.
    """
    actor = tally.bind().actor
    if agent is not None:
        actor = actor.replace(agent=agent)
    answer = react(tally.bind(actor, boundary), event)
    if event.name == "session-end":
        tally.keep_retention()
    return answer


def react(bound: BoundTally, event: Event) -> Answer:
    """Return the answer to an event. Raises nothing that a tally raises: an error is a part of the
    answer, and denies a tool where rules are installed.

    For an event of the spool it raises StorageError and RecorderError, so that it is taken again,
    and what is raised where no gap can be recorded for it.
    """
    bound = bound.on(SURFACE, session_id=event.session)
    try:
        answer = _answer_once(bound, event)
    except TallystickError as error:
        if event.spooled is not None and isinstance(error, StorageError | RecorderError):
            raise
        answer = _failure(bound, event, error)
    return _name_caller(answer, bound)


def _answer_once(bound: BoundTally, event: Event) -> Answer:
    """Answer an event that several paths may tell of, such as a plugin and the settings: the first
    path answers and records, the others leave it to that one, and the journal says so.
    """
    if event.name in DECIDING and not has_rules(bound, "tool_call"):
        return Answer()
    if event.name in _RECORDS:
        other = recorded_elsewhere(bound, event.session, SURFACE)
        if other is not None:
            return _leave_to(other, bound, event)
    key, is_own = _event_key(event)
    path = event.path or _DIRECT
    claim = claim_event(
        bound, event.session, key, path=path, once=is_own, at=event.at, spooled=event.spooled
    )
    if claim.path != path:
        return _leave(bound, event, claim, key)
    if not claim.is_new and event.name in _RECORDS:
        return Answer(facts={"recorded": "before"})
    answer = _REACTIONS[event.name](bound, event)
    if event.name in DECIDING:
        fields = ("decision", "reason", "arguments", "facts")
        values = {name: json_value(getattr(answer, name)) for name in fields}
        answer_claim(bound, event.session, key, values)
    return answer


def _event_key(event: Event) -> tuple[str, bool]:
    """Return the key that every path has for an event, and whether it is the event's own: else it
    is what the event says, which may be said again.
    """
    own = event.call_id or event.event_id
    content = {"tool": event.tool, "arguments": event.arguments}
    if event.call_id is None:
        content |= {
            "prompt": event.prompt,
            "subagent": event.subagent,
            "result": event.result,
            "words": [each.key for each in event.words[-1:]],
        }
    # Models number their calls, and some begin anew in each answer: an id alone names no call.
    is_own = own is not None or event.name == "subagent-end"
    body = json.dumps(content, sort_keys=True, default=str)
    return f"{event.name} {own} {text_digest('hook-event', body)}", is_own


def _leave(bound: BoundTally, event: Event, claim: EventClaim, key: str) -> Answer:
    """Leave an event to the path that told of it first. What was said is kept all the same: each
    turn is kept once, and the first path may have told of fewer. Rules decide once: a decision that
    does not come is asked for again, because an approval may be used once.
    """
    note_seen_again(
        bound,
        event.session,
        observer=SURFACE,
        what=event.name,
        why="told_first",
        path=event.path or _DIRECT,
        active=claim.path,
    )
    if event.name in DECIDING:
        end = time.monotonic() + _SECONDS
        while (answered := claimed_answer(bound, event.session, key)) is None:
            if time.monotonic() > end:
                return _check(bound, event)
            time.sleep(_PAUSE)
        return Answer(**answered)
    if event.words or event.candidates:
        return _REACTIONS[event.name](bound, event)
    return Answer(facts={"told_first_by": claim.path})


def _name_caller(answer: Answer, bound: BoundTally) -> Answer:
    fields = {**vars(answer), "actor": str(bound.actor.user), "scope": str(bound.scope)}
    return Answer(**fields)


def _failure(bound: BoundTally, event: Event, error: TallystickError) -> Answer:
    try:
        note_failure(bound, event.name, error, agent=event.agent, session=event.session)
    except TallystickError:  # what failed may be the tally itself
        if event.spooled is not None:
            raise
    if event.name in DECIDING and has_rules(bound, "tool_call"):
        return Answer(decision="deny", reason=_explain_refusal(error), error=error.code)
    return Answer(error=error.code)


def note_failure(
    bound: BoundTally, event: str, error: Exception, *, agent: str, session: str | None = None
) -> None:
    """Record an event that was not answered as a run with a gap. Raises what a tally raises."""
    thread = {} if session is None else {"thread_id": session}
    run = bound.on(SURFACE).run(agent, metadata={**thread, OBSERVER: SURFACE, "event": event})
    run.count_gap(SURFACE, error)
    run.end("failed")


def _explain_refusal(error: Exception) -> str:
    code = getattr(error, "code", type(error).__name__)
    return f"The rules could not be checked ({code}), so the tool does not run."


def has_told(bound: BoundTally, path: str, *, since: int) -> bool:
    """Whether an event was told by a path since a time, microseconds UTC, in the bound scope."""
    runs = bound.recordings.runs(limit=_RUNS)
    return any(run.metadata.get("path") == path and run.started_at >= since for run in runs)


def _wake(bound: BoundTally, event: Event) -> Answer:
    with bound.run(event.agent, metadata=_metadata(event)):
        # What is handed over comes first: that of the scope, or of the folder's project.
        project = bound.scope.key if bound.scope.kind == "project" else event.project
        return Answer(context=bound.wake(conversation=event.session, project=project).text)


def _recall(bound: BoundTally, event: Event) -> Answer:
    prompt = event.prompt or ""
    if not prompt.strip():
        return Answer()
    with bound.run(event.agent, goal=prompt, metadata=_metadata(event)):
        shown = working_set_for(
            bound, prompt, conversation=event.session, turn=None, memories=_MEMORIES
        )
        # What the session was shown before is in its prompt.
        context = framed_pieces(bound, [piece for piece in shown if piece.new])
    # Kept after the recall, which would find them.
    return replace(_keep(bound, event), context=context)


def _check(bound: BoundTally, event: Event) -> Answer:
    if not has_rules(bound, "tool_call"):
        return Answer()
    tool = event.tool or ""
    with (
        bound.run(event.agent, metadata=_metadata(event)) as run,
        run.step("policy_check", name=tool) as step,
    ):
        try:
            check = bound.check_tool_call(
                tool, event.arguments, tool_call_id=event.call_id, piece="tallystick_hooks"
            )
        except Blocked as error:
            step.end("blocked")
            run.end("blocked")
            return Answer(decision="deny", reason=_refusal(error), facts=error_json(error)["facts"])
    if check.redacts and check.arguments != event.arguments:
        return Answer(
            arguments=check.arguments,
            decision="ask",
            reason="A rule took secrets out of the arguments.",
        )
    is_asked = event.name == "permission"
    if check.approval is not None or (is_asked and check.effect == "allow"):
        # Who granted this call is not asked once more. A rule that allows answers a question alone:
        # whether a client asks at all, its own settings say.
        return Answer(decision="allow", reason=f"The rule {check.rule_id} allows it.")
    return Answer()


def _refusal(error: Blocked) -> str:
    if not isinstance(error, ApprovalRequired):
        return str(error)
    ids = " ".join(approval.id for approval in error.approvals)
    return f"{error} A person allows it with: tally approve {ids} --reason … Then try again."


def _record(bound: BoundTally, event: Event) -> Answer:
    call = ToolCall(event.tool or "", event.arguments, event.call_id)
    with (
        bound.run(event.agent, metadata=_metadata(event)) as run,
        run.step("tool_call", name=call.name) as step,
    ):
        record_tool_call(step, call)
        if event.error is not None:
            record_tool_error(step, None, event.error)
            step.end("failed")
        else:
            record_tool_result(step, event.result)
    return Answer()


def _note_subagent(bound: BoundTally, event: Event) -> Answer:
    """Record what a subagent answered. Its words are none of the user's, and are not kept."""
    with (
        bound.run(event.agent, metadata=_metadata(event)) as run,
        run.step("other", name=event.agent) as step,
    ):
        record_tool_result(step, event.result)
    return Answer()


def _keep(bound: BoundTally, event: Event) -> Answer:
    """Keep what was said, each once however often it is told of."""
    if not event.words:
        return Answer()
    other = recorded_elsewhere(bound, event.session, SURFACE)
    if other is not None:
        return _leave_to(other, bound, event)
    # A turn that was told of before answers as it did then.
    known_ids = {
        turn.id
        for turn in bound.memories(kinds=("turn",), conversation=event.session, limit=_MOST_AT_END)
    }
    stored = 0
    with bound.run(event.agent, metadata=_metadata(event)) as run:
        for words in event.words[-_MOST.get(event.name, _MOST_AT_END) :]:
            turns = bound.keep_turn(
                run,
                user=words.text if words.speaker == "user" else None,
                assistant=words.text if words.speaker == "agent" else None,
                observer=SURFACE,
                occurred_at=event.at,
                idempotency_key=f"{event.session} {words.key}",
            )
            stored += sum(turn.status == "created" and turn.id not in known_ids for turn in turns)
    return Answer(stored=stored)


def _end(bound: BoundTally, event: Event) -> Answer:
    """Keep what was said and what the agent would remember of it, and learn from the session, or
    reflect on it, where the tally does.
    """
    answer = _keep(bound, event)
    if event.candidates:
        answer = replace(answer, facts={**answer.facts, "memories": _remember(bound, event)})
    # A model is asked, which takes longer than a runtime waits for a hook.
    from tallystick_learning import Learning

    reflected = Learning(bound).end_session(event.session, mode="async")
    if reflected.job_id is None:
        return answer
    return replace(answer, facts={**answer.facts, "job": reflected.job_id})


def _remember(bound: BoundTally, event: Event) -> list[dict[str, Any]]:
    """Remember what the agent gave, each once however often it gives it, and return what became of
    each: one that is refused stops no other. The agent acts, whoever told the event: a model is no
    person, and what it says is no turn.
    """
    results: list[dict[str, Any]] = []
    bound = replace(bound, actor=bound.actor.replace(agent=bound.actor.agent or event.agent))
    with bound.run(event.agent, metadata=_metadata(event)):
        for candidate in event.candidates:
            key = f"{event.session} {digest('hook-candidate', json_value(candidate))}"
            try:
                require_kind_of_models(str(candidate.get("kind")))
                [stored] = bound.remember_many([candidate], idempotency_key=key)
            except TallystickError as error:
                results.append(error_json(error))
            else:
                change = {} if stored.change is None else {"change": stored.change}
                results.append({"id": stored.id, "status": stored.status, **change})
    return results


def _leave_to(other: RunRecord, bound: BoundTally, event: Event) -> Answer:
    note_seen_again(
        bound,
        event.session,
        observer=SURFACE,
        what=event.name,
        why="recorded_in_process",
        run=other,
        path=event.path,
    )
    return Answer(facts={"recorded_by": other.id})


def _metadata(event: Event) -> dict[str, Any]:
    details = {"thread_id": event.session, OBSERVER: SURFACE, "event": event.name}
    if event.subagent is not None:
        details["subagent"] = event.subagent
    if event.path is not None:
        details["path"] = event.path
    return details if event.spooled is None else {**details, SPOOLED: event.spooled}


_REACTIONS = {
    "session-start": _wake,
    "prompt": _recall,
    "before-tool": _check,
    "permission": _check,
    "after-tool": _record,
    "subagent-start": _wake,
    "subagent-end": _note_subagent,
    "before-compact": _end,
    "after-compact": _wake,
    "turn-end": _keep,
    "session-end": _end,
}
