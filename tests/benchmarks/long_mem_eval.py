"""LongMemEval's format: each question has a haystack of dated sessions with an assistant, and the
ids of the sessions that answer it. Read into conversations, which are measured by session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.benchmarks.conversations import ADVERSARIAL, Conversation, Query, Turn

_DATE = re.compile(r"(\d{4})/(\d\d)/(\d\d)[^\d]*(\d\d):(\d\d)")
_ABSTENTION = "_abs"
"""What the id of a question ends with that nothing answers."""
WANTED = (
    "A question has `question_id`, `question_type`, `question`, `answer`, `question_date`, "
    "`haystack_session_ids`, `haystack_dates`, `haystack_sessions` of lists of turns with `role` "
    "and `content`, and `answer_session_ids`"
)


def is_long_mem_eval(entries: Sequence[Any]) -> bool:
    """Return True if a list is one of LongMemEval's questions."""
    return isinstance(entries[0], Mapping) and "haystack_sessions" in entries[0]


def conversation_of(entry: Mapping[str, Any]) -> Conversation:
    """Return a question with its haystack. One that nothing answers has the kind of a false
    premise, as it is no part of any mean. Raises KeyError, TypeError, ValueError.
    """
    turns: list[Turn] = []
    gold: set[str] = set()
    answering = set(entry["answer_session_ids"])
    sessions = zip(
        entry["haystack_session_ids"],
        entry["haystack_dates"],
        entry["haystack_sessions"],
        strict=True,
    )
    for number, (session_id, date, said) in enumerate(sessions):
        # The same session may stand in a haystack twice.
        session, at = f"{entry['question_id']}/{number}-{session_id}", moment_of(date)
        own = [
            Turn(f"{session}:{place}", session, place, turn["role"], turn["content"], at)
            for place, turn in enumerate(said)
        ]
        turns += own
        if session_id in answering:
            marks = [bool(turn.get("has_answer")) for turn in said]
            gold |= {one.id for one, is_marked in zip(own, marks, strict=True) if is_marked}
            gold |= {one.id for one in own if not any(marks)}
    is_abstention = str(entry["question_id"]).endswith(_ABSTENTION)
    kind = ADVERSARIAL if is_abstention else str(entry["question_type"])
    query = Query(entry["question"], kind, frozenset(gold), str(entry.get("answer", "")))
    return Conversation(
        str(entry["question_id"]),
        tuple(turns),
        (query,) if gold else (),
        skipped=0 if gold else 1,
        by_session=True,
        asked_at=moment_of(entry.get("question_date")),
    )


def moment_of(text: str | None) -> int | None:
    """Return a date such as `2023/05/20 (Sat) 02:21` in microseconds UTC. Raises ValueError."""
    if not text:
        return None
    found = _DATE.match(text)
    if found is None:
        raise ValueError(f"no date: {text[:40]!a}")
    year, month, day, hour, minute = map(int, found.groups())
    moment = datetime(year, month, day, hour, minute, tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000
