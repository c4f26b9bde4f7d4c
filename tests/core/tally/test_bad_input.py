"""What cannot be meant is refused with an error of our own, says what to do, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import Actor
from tallystick.tally import BoundTally, Tally

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
FAR, HALF = 10**30, "\ud800"
Call = Callable[[BoundTally, str], Any]


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED: dict[str, Call] = {
    "moments far away": lambda mine, _: mine.remember("x", expires_at=FAR),
    "moments of a call": lambda mine, _: mine.recall("x", as_of=FAR),
    "moments of a change": lambda mine, one: mine.modify(one, expires_at=FAR, reason="r"),
    "an end before the beginning": lambda mine, one: mine.modify(
        one, valid_from=10, valid_until=5, reason="r"
    ),
    "a lock until yesterday": lambda mine, one: mine.modify(
        one, tags=("t",), manual_override=5, reason="r"
    ),
    "a lock without an end": lambda mine, one: mine.modify(
        one, tags=("t",), manual_override=FAR, reason="r"
    ),
    "a place far away": lambda mine, _: mine.remember(
        "x", kind="turn", conversation="c", position=FAR
    ),
    "half of a character in a tag": lambda mine, _: mine.remember("x", tags=[HALF]),
    "a NUL in a changed label": lambda mine, one: mine.modify(one, tags=("a\x00b",), reason="r"),
    "half of a character in a changed name": lambda mine, one: mine.modify(
        one, speaker=HALF, reason="r"
    ),
    "no reason": lambda mine, one: mine.forget(one, reason=None),  # type: ignore[arg-type]
    "half of a character in a reason": lambda mine, one: mine.forget(one, reason=HALF),
    "an empty key": lambda mine, one: mine.forget(one, reason="r", idempotency_key=""),
    "half of a character in a key": lambda mine, one: mine.recover(
        one, reason="r", idempotency_key=HALF
    ),
    "a NUL in a key": lambda mine, one: mine.modify(
        one, tags=("t",), reason="r", idempotency_key="\x00"
    ),
    "half of a character in an event": lambda mine, _: mine.recordings.activity(events=[HALF]),
    "runs of a time far away": lambda mine, _: mine.recordings.runs_of([mine.scope], before=FAR),
    "half of a character in the id of a run": lambda mine, _: mine.run("coder", run_id=HALF),
    "half of a character in a filter": lambda mine, _: mine.recall("x", tags=[HALF]),
    "half of a character in the name of a user": lambda mine, _: mine.tally.bind(
        ROOT
    ).operator.erase_user(HALF, reason="r"),
    "a NUL in a folder": lambda mine, _: mine.operator.export("a\x00b"),
    "a NUL in an event": lambda mine, _: mine.recordings.activity(events=["\x00"]),
    "a session without an end": lambda mine, _: mine.wake(conversation="x" * 100_000),
    "a page far before": lambda mine, _: mine.recordings.reads(before=-FAR),
    "fewer than one": lambda mine, _: mine.memories(limit=0),
    "a state that there is not": lambda mine, _: mine.memories(states=["nope"]),  # type: ignore[list-item]
    "a state to explore that there is not": lambda mine, _: mine.explore(
        str(mine.scope),
        states=["x"],  # type: ignore[list-item]
    ),
    "no matches": lambda mine, _: mine.corrections.forget_matching("x", reason="r", limit=0),
    "a score that is no number": lambda mine, _: mine.corrections.forget_matching(
        "x", reason="r", threshold=float("nan")
    ),
    "a mode to forget": lambda mine, _: mine.corrections.forget_matching(
        "x",
        reason="r",
        mode="execute",  # type: ignore[arg-type]
    ),
    "a mode to correct": lambda mine, one: mine.corrections.make(one, "hide", reason="r", mode="x"),  # type: ignore[arg-type]
    "a mode to erase": lambda mine, one: mine.operator.erase(one, reason="r", mode="x"),  # type: ignore[arg-type]
    "a mode to purge": lambda mine, _: mine.operator.purge(mode="x"),  # type: ignore[arg-type]
    "a mode to share": lambda mine, one: mine.corrections.share(
        one,
        "project:x",
        reason="r",
        mode="x",  # type: ignore[arg-type]
    ),
    "half a day": lambda mine, _: mine.operator.choose_windows(journal_days=1.5),  # type: ignore[arg-type]
    "a window of ages": lambda mine, _: mine.operator.choose_windows(journal_days=FAR),
    "a value that lives for ages": lambda mine, _: mine.working.of("r").set("a", 1, expires_in=FAR),
    "half of a character in a name": lambda mine, _: mine.working.of("r").set(HALF, 1),
    "a value without a bottom": lambda mine, _: mine.working.of("r").set("a", _nested(9_999)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    open_sqlite: OpenTally, what: str
) -> None:
    with open_sqlite() as tally:
        mine = tally.bind(ROOT)
        one = mine.remember("The heron nests in March.").id
        before = mine.memories(), mine.history(one)
        with pytest.raises(InvalidInput):
            REFUSED[what](mine, one)
        assert (mine.memories(), mine.history(one)) == before
        assert not any(finding.status == "problem" for finding in mine.operator.doctor())


@pytest.mark.parametrize("identity", ["", "\x00", HALF, "%", "x" * 100_000])
def test_an_id_that_nothing_can_have_is_not_found(open_tally: OpenTally, identity: str) -> None:
    with open_tally() as tally:
        mine = tally.bind(ROOT)
        for call in (
            lambda: mine.get(identity),
            lambda: mine.history(identity),
            lambda: mine.inspect(identity),
            lambda: mine.forget(identity, reason="r"),
            lambda: mine.explore(identity),
            lambda: mine.memories(before=identity),
        ):
            with pytest.raises(NotFound) as absent:
                call()
            str(absent.value).encode()
