"""A source is read by its id: its text as it arrived, its lifecycle, and what was drawn from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick.errors import NotFound
from tallystick.records import Actor, SourceInspection, SourceRef
from tallystick.tally import BoundTally, Tally
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
ROOT = Actor(user="root", role="operator")
TEXT = "The heron nests in March."


def _applied(bound: BoundTally, memory_id: str, correction: Any, **options: Any) -> None:
    preview = bound.corrections.make(memory_id, correction, reason="r", **options)
    bound.corrections.make(
        memory_id,
        correction,
        reason="r",
        mode="apply",
        confirm_token=preview.confirm_token,
        **options,
    )


def test_a_source_gives_its_text_and_every_memory_drawn_from_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember(
            TEXT,
            source=SourceRef(source_type="file", uri="file:birds.md", title="Birds", author="Ada"),
            occurred_at=5,
        )
        concluded = apollo.remember("Do not mow in March.", derived_from=[kept.id])

        source = apollo.source(kept.source_id)
        inspected = apollo.inspect(kept.source_id)

        assert isinstance(inspected, SourceInspection)
        assert inspected == source.model_copy(update={"text": None})
        assert (source.id, source.kind, source.state) == (kept.source_id, "source", "active")
        assert (source.text, source.preview) == (TEXT, TEXT)
        assert (source.source_type, source.uri, source.title, source.speaker) == (
            "file",
            "file:birds.md",
            "Birds",
            "Ada",
        )
        assert (source.created_by, source.occurred_at) == ("alice", 5)
        assert [(one.id, one.state, one.version) for one in source.derived] == [
            (kept.id, "active", 1)
        ]
        assert source.affected.derived == (concluded.id,)
        assert source.updated_at == source.created_at


def test_the_lifecycle_of_a_source_follows_the_memories_drawn_from_it(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember(TEXT)

        def now() -> tuple[str, str | None, bool]:
            source = apollo.source(kept.source_id)
            return source.state, source.text, source.shown

        first = apollo.source(kept.source_id).updated_at
        _applied(apollo, kept.id, "hide")
        assert now() == ("hidden", None, False)
        assert apollo.source(kept.source_id).updated_at > first
        assert apollo.inspect(kept.source_id).access_reason == "hidden_source"
        _applied(apollo, kept.id, "restore")
        assert now() == ("active", TEXT, True)
        _applied(apollo, kept.id, "redact")
        assert now() == ("redacted", None, False)
        _applied(apollo, kept.id, "restore")
        apollo.forget(kept.id, reason="r")
        assert now() == ("deleted", None, False)
        root = tally.bind(ROOT, scope="project:apollo").operator
        preview = root.erase(kept.id, reason="r")
        root.erase(kept.id, reason="r", mode="apply", confirm_token=preview.confirm_token)
        assert now() == ("erased", None, False)
        assert apollo.source(kept.source_id).derived[0].state == "deleted"


def test_a_source_of_another_scope_is_as_one_that_is_not_there(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        kept = tally.bind(ALICE).remember(TEXT)
        bob = tally.bind(BOB)
        absent = "0" * len(kept.source_id)
        for verb in (bob.source, bob.inspect):
            messages = []
            for source_id in (kept.source_id, absent):
                with pytest.raises(NotFound) as hidden:
                    verb(source_id)
                messages.append(str(hidden.value).replace(source_id, "ID"))
            assert messages[0] == messages[1]
        for source_id in (kept.id, "\x00", "\ud800", ""):
            with pytest.raises(NotFound):
                tally.bind(ALICE).source(source_id)


def test_who_inspects_without_reading_learns_no_text_of_a_source(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        reference = SourceRef(source_type="file", uri="file:birds.md", title="Birds", author="Ada")
        kept = tally.bind(ALICE).remember(TEXT, source=reference)
        root = tally.bind(ROOT)

        inspected = root.inspect(kept.source_id)

        assert (inspected.state, inspected.shown, inspected.access_reason) == (
            "active",
            False,
            "principal_mismatch",
        )
        for secret in ("heron", "birds", "Birds", "Ada"):
            assert secret not in inspected.dumps()
        with pytest.raises(NotFound):
            root.source(kept.source_id)
