"""Whatever is changed, forgotten, recovered, corrected, killed and opened again, in any order: the
promises hold.

The model knows of each memory what it says, its state and its versions, by its own few lines. After
every step recall shows what the model says, histories are complete, and the journal verifies.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tallystick.errors import InvalidInput, StateConflict, TallystickError, VersionConflict
from tallystick.records import Actor
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

ALICE = Actor(user="alice")
ROOT = Actor(user="root", role="operator")
WORDS = ("heron", "egret", "stork", "crane")


class _Died(BaseException):
    """The process ends here."""


@dataclass
class _Known:
    """What the model knows of one memory."""

    text: str
    state: str = "active"
    version: int = 1
    events: list[str] = field(default_factory=lambda: ["ADD"])
    before: list[tuple[str, str]] = field(default_factory=list)
    """(state, text) before each correction in force, latest last."""
    other: str | None = None
    erased: bool = False


class MemoryMachine(RuleBasedStateMachine):
    """One scope of one tally, closed and opened and killed at will."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.schema = f"t{uuid.uuid4().hex}"
        self.clock = StepClock()
        self.known: dict[str, _Known] = {}
        self.number = 0
        self.tally = self.opened()

    def opened(self) -> Tally:
        return Tally.open(self.folder.name, background=False, clock=self.clock)

    @property
    def mine(self) -> BoundTally:
        return self.tally.bind(ALICE)

    def teardown(self) -> None:
        if hasattr(self, "tally"):
            self.tally.close()
            self.folder.cleanup()

    def pick(self, data: Any, *states: str) -> str | None:
        fit = sorted(
            one for one, known in self.known.items() if known.state in states and not known.erased
        )
        return data.draw(st.sampled_from(fit)) if fit else None

    @rule(word=st.sampled_from(WORDS))
    def remember(self, word: str) -> None:
        self.number += 1
        text = f"The {word} number{self.number}x nests."
        kept = self.mine.remember(text, idempotency_key=f"k{self.number}")
        assert self.mine.remember(text, idempotency_key=f"k{self.number}") == kept
        self.known[kept.id] = _Known(text)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), stale=st.booleans())
    def modify(self, data: Any, stale: bool) -> None:
        memory_id = self.pick(data, "active")
        if memory_id is None:
            return
        known = self.known[memory_id]
        self.number += 1
        text = f"The gull number{self.number}x rests."
        if stale:
            with pytest.raises(VersionConflict):
                self.mine.modify(memory_id, content=text, reason="r", if_version=known.version + 1)
            return
        done = self.mine.modify(
            memory_id, content=text, reason="r", if_version=known.version, idempotency_key=text
        )
        assert (
            self.mine.modify(
                memory_id, content=text, reason="r", if_version=known.version, idempotency_key=text
            )
            == done
        )
        known.text, known.version = text, known.version + 1
        known.events.append("UPDATE")

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        memory_id = self.pick(data, "active", "superseded", "hidden")
        if memory_id is None:
            return
        self.mine.forget(memory_id, reason="r")
        known = self.known[memory_id]
        known.before.append((known.state, known.text))
        known.state, known.version = "deleted", known.version + 1
        known.events.append("FORGET")
        assert self.mine.operator.prove_unreachable(memory_id).holds

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        correction=st.sampled_from(["hide", "mark_wrong", "redact", "supersede", "delete"]),
    )
    def correct(self, data: Any, correction: Any) -> None:
        memory_id, other = self.pick(data, "active"), self.pick(data, "active")
        if memory_id is None or memory_id == other:
            return
        known = self.known[memory_id]
        by = {"by": other} if correction == "supersede" else {}
        preview = self.mine.corrections.make(memory_id, correction, reason="r", **by)  # type: ignore[arg-type]
        assert preview.version == known.version
        self.mine.corrections.make(
            memory_id,
            correction,
            reason="r",
            mode="apply",
            confirm_token=preview.confirm_token,
            **by,  # type: ignore[arg-type]
        )
        known.before.append((known.state, known.text))
        known.state, known.version = preview.after, known.version + 1
        known.events.append("FORGET" if correction == "delete" else "CORRECT")
        if correction == "redact":
            known.text = "[redacted]"
        if correction == "supersede" and other is not None:
            known.other = other
            # The replacement holds from now on, which is a change of its own where it was not said
            # before.
            actual = self.mine.get(other).version
            if actual != self.known[other].version:
                self.known[other].version = actual
                self.known[other].events.append("CORRECT")

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        memory_id = self.pick(data, "hidden", "redacted", "superseded", "deleted")
        if memory_id is None:
            return
        known = self.known[memory_id]
        preview = self.mine.corrections.make(memory_id, "restore", reason="r")
        self.mine.corrections.make(
            memory_id, "restore", reason="r", mode="apply", confirm_token=preview.confirm_token
        )
        known.state, known.text = known.before.pop()
        known.version += 1
        known.events.append("CORRECT")

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def recover(self, data: Any) -> None:
        memory_id = self.pick(data, "deleted")
        if memory_id is None:
            return
        known = self.known[memory_id]
        before = known.before[-1][0]
        done = self.mine.recover(memory_id, reason="r")
        assert done.status == "changed"
        known.before.pop()
        if before != "active":
            # Recovering brings back into recall, whatever it stood under.
            known.before.clear()
        known.state, known.version = "active", known.version + 1
        known.events.append("RECOVER")

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def erase(self, data: Any) -> None:
        memory_id = self.pick(data, "deleted", "active")
        if memory_id is None:
            return
        root, known = self.tally.bind(ROOT), self.known[memory_id]
        preview = root.operator.erase(memory_id, reason="r")
        done = root.operator.erase(
            memory_id, reason="r", mode="apply", confirm_token=preview.confirm_token
        )
        assert all(proof.holds for proof in done.proofs), done.proofs
        known.erased, known.state = True, "deleted"
        known.events.append("ERASE")

    @precondition(lambda self: self.known)
    @rule(data=st.data(), operation=st.sampled_from(["modify", "forget", "correct"]))
    def die_while_changing(self, data: Any, operation: str) -> None:
        """The journal entry is written last: a process that ends there must leave nothing of the
        change.
        """
        memory_id = self.pick(data, "active")
        if memory_id is None:
            return
        token = self.mine.corrections.make(memory_id, "hide", reason="r").confirm_token
        whole = journal.append

        def dying(*_: Any) -> Any:
            raise _Died

        journal.append = dying  # type: ignore[assignment]
        try:
            with pytest.raises(_Died):  # noqa: PT012
                if operation == "modify":
                    self.mine.modify(memory_id, content="Never said.", reason="r")
                elif operation == "forget":
                    self.mine.forget(memory_id, reason="r")
                else:
                    self.mine.corrections.make(
                        memory_id, "hide", reason="r", mode="apply", confirm_token=token
                    )
        finally:
            journal.append = whole
        self.reopen()

    @rule()
    def reopen(self) -> None:
        self.tally.close()
        self.tally = self.opened()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def what_does_not_fit_changes_nothing(self, data: Any) -> None:
        memory_id = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[memory_id]
        for call in (
            lambda: self.mine.corrections.make(
                memory_id, "hide", reason="r", mode="apply", confirm_token="1.no"
            ),
            lambda: self.mine.modify(memory_id, content=" ", reason="r"),
            lambda: self.mine.corrections.make(memory_id, "supersede", reason="r", by=memory_id),
        ):
            with pytest.raises(TallystickError):
                call()
        if known.erased:
            with pytest.raises((StateConflict, InvalidInput)):
                self.mine.recover(memory_id, reason="r")

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if not hasattr(self, "tally"):
            return
        shown = {
            memory_id: known
            for memory_id, known in self.known.items()
            if known.state in ("active", "redacted")
            or (known.state == "superseded" and self.leads_somewhere(known))
        }
        found = {
            hit.memory.id: hit.memory.content
            for word in ("nests rests number heron egret stork crane gull", "redacted")
            for hit in self.mine.recall(word, limit=1_000)
        }
        assert found == {memory_id: known.text for memory_id, known in shown.items()}
        assert set(self.mine.spaces.preview_access().visible) == set(shown)
        for memory_id, known in self.known.items():
            history = self.mine.history(memory_id)
            assert [entry.event for entry in history] == known.events
            if known.state in ("deleted", "hidden"):
                assert not any("content" in entry.new for entry in history)
        with services_of(self.tally).store.database.read() as connection:
            assert journal.verify_stream(connection, "scope:private:alice") == []

    def leads_somewhere(self, known: _Known) -> bool:
        """Whether what replaced it, at the end of the chain, can be seen."""
        seen = 0
        while known.state == "superseded" and known.other is not None and seen < 40:
            known, seen = self.known[known.other], seen + 1
        return known.state in ("active", "redacted")


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=5, stateful_step_count=25)


class MemoryMachineOnPostgres(MemoryMachine):
    """The same on a server."""

    url = ""

    def opened(self) -> Tally:
        return Tally.open(self.url, schema=self.schema, background=False, clock=self.clock)


@pytest.mark.soak
@pytest.mark.postgres
def test_the_promises_hold_on_postgres(postgres_url: str) -> None:
    MemoryMachineOnPostgres.url = postgres_url
    run_state_machine_as_test(
        MemoryMachineOnPostgres, settings=settings(max_examples=3, stateful_step_count=20)
    )
