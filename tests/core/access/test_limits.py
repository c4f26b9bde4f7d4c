"""Limits: who looks more often than a tally allows is refused, told for how long, and journaled
once for each wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from tallystick.access.limits import NETWORK_LIMITS, Limits
from tallystick.errors import Denied, InvalidInput, RateLimited, SettingsError
from tallystick.memory import Put
from tallystick.records import Actor, Credential, Limited
from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
CODER = Actor(user="alice", agent="coder")


def _refusals(tally: Tally) -> list[Any]:
    with services_of(tally).store.database.read() as connection:
        return [
            entry for entry in journal.all_entries(connection) if entry.reason == "rate_limited"
        ]


def test_who_looks_too_often_is_refused_until_the_time_that_the_error_says(
    open_tally: OpenTally,
) -> None:
    clock = StepClock(step=0)
    with open_tally(clock=clock, settings=Settings.read(rate_limits={"inspect": 3})) as tally:
        mine = tally.bind(ALICE)
        kept = mine.remember("The heron.").id
        for _ in range(3):
            mine.inspect(kept)

        with pytest.raises(RateLimited) as refused:
            mine.inspect(kept)

        error = refused.value
        assert (error.reason, error.retry_after, isinstance(error, Denied)) == (
            "rate_limited",
            20,
            True,
        )
        assert str(error) == "inspect was refused: rate_limited. Try again in 20 s."
        [entry] = _refusals(tally)
        assert (entry.audit_id, entry.details["operation"]) == (error.decision.audit_id, "inspect")
        with pytest.raises(RateLimited) as again:
            mine.inspect(kept)
        assert again.value.decision.audit_id == error.decision.audit_id
        assert len(_refusals(tally)) == 1
        assert mine.get(kept).content == "The heron."
        assert tally.bind(CODER).inspect(kept).id == kept

        clock.advance(seconds=20)
        mine.inspect(kept)
        with pytest.raises(RateLimited):
            mine.inspect(kept)
        assert len(_refusals(tally)) == 2


LOOKS: dict[str, tuple[str, Callable[[BoundTally, str, Path], Any]]] = {
    "recall": ("read", lambda bound, kept, place: bound.recall("heron")),
    "get": ("read", lambda bound, kept, place: bound.get(kept)),
    "memories": ("read", lambda bound, kept, place: bound.memories()),
    "history": ("read", lambda bound, kept, place: bound.history(kept)),
    "explore": ("read", lambda bound, kept, place: bound.explore()),
    "pack": ("read", lambda bound, kept, place: bound.pack("heron")),
    "wake": ("read", lambda bound, kept, place: bound.wake()),
    "items": ("read", lambda bound, kept, place: bound.items.find()),
    "inspect": ("inspect", lambda bound, kept, place: bound.inspect(kept)),
    "preview_access": ("preview", lambda bound, kept, place: bound.spaces.preview_access()),
    "preview_member": (
        "preview",
        lambda bound, kept, place: bound.spaces.preview_member(
            "project:a", {"principal_id": "eve"}
        ),
    ),
    "forget_matching": (
        "preview",
        lambda bound, kept, place: bound.corrections.forget_matching("heron", reason="r"),
    ),
    "correct": (
        "preview",
        lambda bound, kept, place: bound.corrections.make(kept, "hide", reason="r"),
    ),
    "promote": (
        "preview",
        lambda bound, kept, place: bound.corrections.promote(kept, "project:a", reason="r"),
    ),
    "export": ("export", lambda bound, kept, place: bound.operator.export(place)),
}


def test_every_way_to_look_counts_and_a_change_has_limits_of_its_own(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    limits = dict.fromkeys(("read", "inspect", "preview", "export"), 1)
    with open_sqlite(clock=StepClock(step=0), settings=Settings.read(rate_limits=limits)) as tally:
        for number, (name, (_, look)) in enumerate(LOOKS.items()):
            bound = tally.bind(Actor(user=f"user {number}", projects={"a"}))
            kept = bound.remember("The heron.").id
            look(bound, kept, tmp_path / name)
            with pytest.raises(RateLimited):
                look(bound, kept, tmp_path / f"{name} again")
            assert bound.modify(kept, tags=("t",), reason="r").status == "changed"
    assert {what for what, _ in LOOKS.values()} == set(limits)


def _applied(bound: BoundTally, verb: str, *arguments: Any, **options: Any) -> Any:
    part = bound.operator if verb == "erase" else bound.corrections
    call = getattr(part, verb)
    token = call(*arguments, reason="r", **options).confirm_token
    return call(*arguments, reason="r", mode="apply", confirm_token=token, **options)


def _shorter(ids: list[str]) -> int:
    ids.pop()
    return len(ids)


CHANGES: dict[str, tuple[str, Callable[[BoundTally, list[str]], Any]]] = {
    "remember": ("write", lambda bound, ids: bound.remember("The egret.")),
    "remember_many": ("write", lambda bound, ids: bound.remember_many(["The stork."])),
    "promote": ("write", lambda bound, ids: _applied(bound, "promote", ids.pop(), "project:a")),
    "items": ("write", lambda bound, ids: bound.items.put([Put(("a",), "b", {"c": 1})])),
    "working": ("write", lambda bound, ids: bound.working.of("run").set("plan", ["mend"])),
    "modify": ("modify", lambda bound, ids: bound.modify(ids[0], tags=("t",), reason="r")),
    "correct": ("modify", lambda bound, ids: _applied(bound, "make", ids.pop(), "hide")),
    "recover": ("modify", lambda bound, ids: bound.recover(ids[0], reason="r")),
    "forget": ("forget", lambda bound, ids: bound.forget(ids.pop(), reason="r")),
    "delete": ("forget", lambda bound, ids: _applied(bound, "make", ids.pop(), "delete")),
    "forget_matching": (
        "forget",
        lambda bound, ids: _applied(bound, "forget_matching", tags=[f"t{_shorter(ids)}"]),
    ),
    "erase": ("erase", lambda bound, ids: _applied(bound, "erase", ids.pop())),
    "purge": ("erase", lambda bound, ids: bound.operator.purge(mode="apply", reason="r")),
}


def test_every_way_to_change_counts_where_it_is_limited(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        for number in range(len(CHANGES)):
            tally.bind(Actor(user=f"user {number}")).remember_many(
                [{"content": f"Heron {n}.", "tags": [f"t{n}"]} for n in range(4)]
            )
    limits = dict.fromkeys(("write", "modify", "forget", "erase"), 1)
    with open_sqlite(clock=StepClock(step=0), settings=Settings.read(rate_limits=limits)) as tally:
        for number, (name, (_, change)) in enumerate(CHANGES.items()):
            bound = tally.bind(Actor(user=f"user {number}", projects={"a"}, role="operator"))
            ids = [memory.id for memory in bound.memories()]
            change(bound, ids)
            with pytest.raises(RateLimited) as refused:
                change(bound, ids)
            assert (refused.value.reason, refused.value.retry_after) == ("rate_limited", 60), name
        assert len(_refusals(tally)) == len(CHANGES)
    assert {limited for limited, _ in CHANGES.values()} == set(limits)


def test_many_memories_in_one_call_count_each(open_sqlite: OpenTally) -> None:
    settings = Settings.read(rate_limits={"write": 3})
    with open_sqlite(clock=StepClock(step=0), settings=settings) as tally:
        mine = tally.bind(ALICE)
        with pytest.raises(InvalidInput, match=r"4 at once is more than .*, 3"):
            mine.remember_many(["a", "b", "c", "d"])
        mine.remember_many(["a", "b"])
        with pytest.raises(RateLimited):
            mine.remember_many(["c", "d"])
        mine.remember("c")
        assert len(mine.memories()) == 3


def test_a_minute_s_worth_may_come_at_once_and_no_more_over_any_time() -> None:
    limits, now = Limits({"read": 6}), 0
    taken = []
    for _ in range(600):
        taken.append(limits.wait(ALICE, "read", now) == 0)
        now += 1_000_000
    assert (sum(taken[:1]), sum(taken[:60]), sum(taken)) == (1, 11, 65)
    assert limits.wait(ALICE, "inspect", now) == 0


def test_processes_count_together(open_sqlite: OpenTally) -> None:
    """Each has its own memory, and learns of the others by the database."""
    clock, settings = StepClock(step=0), Settings.read(rate_limits={"inspect": 4, "read": 100})
    with (
        open_sqlite(clock=clock, settings=settings) as first,
        open_sqlite(clock=clock, settings=settings) as second,
    ):
        kept = first.bind(ALICE).remember("The heron.").id
        taken = 0
        for number in range(8):
            tally = (first, second)[number % 2]
            with suppress(RateLimited):
                tally.bind(ALICE).inspect(kept)
                taken += 1
            services_of(tally).store.database.flush()
        reads = 0
        for number in range(300):
            tally = (first, second)[number % 2]
            with suppress(RateLimited):
                tally.bind(ALICE).get(kept)
                reads += 1
            services_of(tally).store.database.flush()

        assert taken == 4
        assert 100 <= reads <= 105
        clock.advance(seconds=15)
        second.bind(ALICE).inspect(kept)
        services_of(second).store.database.flush()
        with pytest.raises(RateLimited):
            first.bind(ALICE).inspect(kept)
        with services_of(first).store.database.read() as connection:
            rows = connection.exec_driver_sql("SELECT name FROM settings").scalars().all()
        assert len([name for name in rows if name.startswith("rate.")]) == 2
        assert not [name for name in rows if "alice" in name]


def test_only_who_comes_with_a_token_is_limited_where_nothing_is_said() -> None:
    limits = Limits({"read": 6})
    by_token = ALICE.replace(credential=Credential(token_id="t"))
    on_socket = ALICE.replace(credential=Credential())
    assert set(NETWORK_LIMITS) == set(get_args(Limited))
    assert [limits.most(actor, "erase") for actor in (ALICE, on_socket, by_token)] == [
        None,
        None,
        60,
    ]
    assert [limits.most(actor, "read") for actor in (ALICE, on_socket, by_token)] == [6, 6, 6]


def test_a_limit_is_at_least_one_a_minute_for_something_that_can_be_limited() -> None:
    for wrong in ({"read": 0}, {"sleep": 3}):
        with pytest.raises(SettingsError):
            Settings.read(rate_limits=wrong)
