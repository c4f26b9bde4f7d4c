"""Learning that applies: what passes the guard is done and taken back in one step, the rest is held
and shown beside what it would change; a conversation is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import Denied, ExtractionError, InvalidInput, NotFound, StateConflict
from tallystick.kit import framed_pieces
from tallystick.memory.held_changes import applied_since, held_changes
from tallystick.operations.tools import memory_get, memory_search, memory_store
from tallystick.records import (
    ExtractedFact,
    Extraction,
    FactChange,
    FactMode,
    KnownFact,
    Proposal,
    SourceRef,
)
from tallystick.settings import Settings
from tallystick.storage.rows import jobs, memories, scopes
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing import ScriptedLearner, StepClock
from tallystick_learning import Learning

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna", role="operator")
BOB = Actor(user="bob")
OLD = "Anna lives in Berlin."
NEW = "Anna lives in Hamburg."
SAID = "I live in Hamburg now"
QUOTED = 'Ben wrote "I live in Hamburg now" about himself'


def learner(
    change: FactChange | None = "replaces", *, mode: FactMode = "stated", content: str = NEW
) -> ScriptedLearner:
    """A model that takes the words of `SAID` for a change of `OLD`, wherever they stand."""

    def read(text: str) -> Extraction:
        if SAID not in text:
            return Extraction()
        fact = ExtractedFact(content=content, span=SAID, mode=mode, confidence=90)
        return Extraction(facts=(fact,))

    def target(fact: ExtractedFact, known: Sequence[KnownFact]) -> ExtractedFact:
        named = [each.id for each in known if each.text == OLD]
        if change is None or not named:
            return fact
        return fact.model_copy(update={"change": change, "target": named[0], "was": OLD})

    return ScriptedLearner(read, target)


def opened(open_tally: OpenTally, model: ScriptedLearner | None = None, **settings: Any) -> Tally:
    options = Settings.read(**{"learning": "apply", **settings})
    return open_tally(
        settings=options, owner=ANNA, learning_model=model or learner(), clock=StepClock()
    )


def say(bound: BoundTally, text: str, session: str = "monday") -> str:
    return bound.remember(text, kind="turn", conversation=session, speaker=bound.actor.user).id


def known(bound: BoundTally, content: str = OLD, **fields: Any) -> str:
    return bound.remember(content, kind="fact", mode="raw", **fields).id


def end(bound: BoundTally, session: str = "monday") -> Proposal:
    [proposal] = Learning(bound).end_session(session).proposals
    return proposal


def found(bound: BoundTally, **options: Any) -> list[str]:
    return [hit.content for hit in bound.recall("Where does Anna live?", kinds=["fact"], **options)]


def test_a_change_that_passes_is_applied_and_undone_in_one_step(open_tally: OpenTally) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        old = known(anna)
        say(anna, SAID)
        applied = end(anna)

        assert (applied.state, applied.reason) == ("applied", "contradiction")
        assert applied.decided_by is not None
        assert applied.decided_by["agent"] == "tallystick-extract", "a model is never the person"
        assert found(anna) == [NEW]
        assert anna.get(old).valid_until is not None
        [event] = [each for each in anna.history(old) if each.event == "CORRECT"]
        assert applied.id in (event.reason or ""), "history leads to the words"

        undone = anna.reviews.decide(applied.id, "undo", reason="a slip of the tongue")
        assert undone.state == "undone"
        assert found(anna) == [OLD]
        assert anna.get(old).valid_until is None
        with pytest.raises(StateConflict, match="nothing was done"):
            anna.reviews.decide(applied.id, "undo", reason="again")
        assert [each.event for each in anna.reviews.get(applied.id).history] == [
            "proposal.made",
            "proposal.applied",
            "proposal.undone",
        ]


def test_what_ended_is_found_when_it_is_asked_for(open_tally: OpenTally) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        old = known(anna)
        before = tally.now()
        say(anna, SAID)
        applied = end(anna)

        assert found(anna, states=["superseded"]) == [OLD]
        assert found(anna, as_of=before) == [OLD]
        [hit] = anna.recall("Where does Anna live?", states=["superseded"])
        assert (hit.replaced_by, hit.history) == (applied.made, True)
        assert OLD not in anna.pack("Where does Anna live?").text
        assert OLD not in anna.wake().text
        assert anna.get(old).state == "superseded"

        [ended] = [
            each
            for each in memory_search(
                anna, "Where did I live before?", states=["active", "superseded"]
            )["memories"]
            if each["text"] == OLD
        ]
        assert (ended["holds_no_longer"], ended["replaced_by"]) == (True, applied.made)
        assert memory_get(anna, old)["memory"]["holds_no_longer"] is True
        assert "holds_no_longer" not in memory_get(anna, applied.made or "")["memory"]


@pytest.mark.parametrize(
    ("change", "state", "shown"),
    [
        ("replaces", "applied", [NEW]),
        ("corrects", "applied", [NEW]),
        ("ends", "applied", []),
        ("exception", "applied", [NEW, OLD]),
        ("contradicts", "applied", [NEW, OLD]),
        ("same_as", None, [OLD]),
    ],
)
def test_each_change_does_what_it_says(
    open_sqlite: OpenTally, change: FactChange, state: str | None, shown: list[str]
) -> None:
    with opened(open_sqlite, learner(change)) as tally:
        anna = tally.bind()
        old = known(anna)
        say(anna, SAID)
        proposals = Learning(anna).end_session("monday").proposals
        assert [each.state for each in proposals] == ([] if state is None else [state])
        assert sorted(found(anna)) == sorted(shown)
        if change == "corrects":
            ended = anna.get(old)
            assert ended.valid_until is not None
            assert ended.valid_until <= ended.created_at, "it was never true"
        for each in proposals:
            anna.reviews.decide(each.id, "undo", reason="no")
        assert found(anna) == [OLD]


@pytest.mark.parametrize(
    ("text", "mode", "source", "reason"),
    [
        (QUOTED, "stated", None, "quoted"),
        (f"Would you say {SAID}?", "stated", None, "question"),
        (SAID, "supposed", None, "not_stated"),
        (SAID, "reported", None, "not_stated"),
        (SAID, "stated", SourceRef(source_type="tool"), "foreign_text"),
        (SAID, "stated", SourceRef(source_type="other"), "foreign_text"),
    ],
)
def test_what_does_not_pass_is_held_and_shown_beside_what_it_would_change(
    open_sqlite: OpenTally, text: str, mode: FactMode, source: SourceRef | None, reason: str
) -> None:
    with opened(open_sqlite, learner(mode=mode)) as tally:
        anna = tally.bind()
        old = known(anna)
        anna.remember(text, kind="turn", conversation="monday", speaker="anna", source=source)
        held = end(anna)

        assert (held.state, held.reason) == ("pending", reason)
        [hit] = anna.recall("Where does Anna live?", kinds=["fact"])
        [beside] = hit.held
        assert (hit.memory.id, beside.proposal_id, beside.is_own) == (old, held.id, False)
        assert beside.text == SAID, "the words that were said, not what a model made of them"
        assert f"not confirmed: {SAID}" in anna.pack("Where does Anna live?").text

        anna.reviews.decide(held.id, "accept", reason="it is so")
        assert found(anna) == [NEW]
        assert anna.recall("Where does Anna live?", kinds=["fact"])[0].held == ()


def test_a_held_change_of_ones_own_words_is_shown_as_the_new_sentence(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite, learning="review") as tally:
        anna = tally.bind()
        known(anna)
        say(anna, SAID)
        held = end(anna)
        [hit] = anna.recall("Where does Anna live?", kinds=["fact"])
        assert [(each.text, each.is_own) for each in hit.held] == [(NEW, True)]
        assert "held" in anna.pack("Where does Anna live?").items[0].dump()
        anna.reviews.decide(held.id, "reject", reason="no")
        assert anna.recall("Where does Anna live?", kinds=["fact"])[0].held == ()


def test_what_is_held_is_read_within_scopes_and_goes_with_its_text(open_tally: OpenTally) -> None:
    with opened(open_tally, learning="review") as tally:
        anna, services = tally.bind(), services_of(tally)
        old = known(anna)
        turn = say(anna, SAID)
        end(anna)

        def held(actor: Actor) -> int:
            with services.store.database.read() as connection:
                stored = memories.get(connection, old)
                assert stored is not None
                return len(held_changes(connection, services.memory, actor, [stored]))

        assert (held(ANNA), held(BOB)) == (1, 0)
        anna.forget(turn, reason="off the record")
        assert held(ANNA) == 0


def test_what_was_applied_since_a_moment_is_listed_with_what_held_before(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally) as tally:
        anna, services = tally.bind(), services_of(tally)
        old = known(anna)
        before = tally.now()
        say(anna, SAID)
        applied = end(anna)

        def since(moment: int) -> list[tuple[str, str, str | None, str | None]]:
            with services.store.database.read() as connection:
                ids = [row.id for row in scopes.find(connection, [anna.scope])]
                listed = applied_since(
                    connection, services.memory, ANNA, ids, moment, tally.now()
                ).values()
            return [(each.proposal_id, each.text, each.target, each.was) for each in listed]

        assert since(before) == [(applied.id, SAID, old, OLD)]
        assert since(tally.now()) == []
        anna.reviews.decide(applied.id, "undo", reason="no")
        assert since(before) == []


def framed(bound: BoundTally, conversation: str, text: str = "Good morning") -> list[str]:
    """The lines that a session shows of Anna's home."""
    shown = bound.working_set(text, conversation=conversation).pieces
    return [line for line in framed_pieces(bound, shown).splitlines() if "Hamburg" in line]


def test_the_first_session_after_a_change_shows_its_words_and_what_held_before(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        known(anna)
        assert framed(anna, "monday") == []
        say(anna, SAID)
        applied = end(anna)

        [line] = framed(anna, "tuesday")
        assert NEW in line
        assert f"in place of: {OLD}; said: {SAID})" in line
        assert framed(anna, "tuesday", "And where do I live?") == [line], "the prefix stays"
        [piece] = anna.working_set("Hello again", conversation="wednesday").pieces
        assert (piece.hit.content, piece.hit.learned) == (NEW, None)

        anna.reviews.decide(applied.id, "undo", reason="no")
        assert framed(anna, "tuesday", "Hello") == []


def test_the_first_session_after_shows_what_ended_beside_the_words_that_ended_it(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally, learner("ends")) as tally:
        anna = tally.bind()
        known(anna)
        anna.working_set("Hello", conversation="monday")
        say(anna, SAID)
        end(anna)

        [line] = framed(anna, "tuesday")
        assert SAID in line
        assert f"ended: {OLD})" in line
        assert anna.working_set("Hello", conversation="tuesday").pieces[0].chosen_as == "learned"


def test_what_was_applied_is_told_to_nobody_who_may_not_read_its_words(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        known(anna)
        anna.working_set("Hello", conversation="monday")
        turn = say(anna, SAID)
        end(anna)
        anna.forget(turn, reason="off the record")

        assert all(SAID not in line for line in framed(anna, "tuesday"))


def test_a_shadow_shows_what_would_be_done_and_does_nothing(open_tally: OpenTally) -> None:
    with opened(open_tally, learning="shadow") as tally:
        anna = tally.bind()
        known(anna)
        say(anna, f"{SAID}. {QUOTED}")
        shadow = end(anna)
        assert (shadow.state, shadow.passed) == ("shadow", True)
        assert found(anna) == [OLD]
        assert anna.reviews.list() == []
        assert [each.id for each in anna.reviews.list(states=["shadow"])] == [shadow.id]
        with pytest.raises(StateConflict):
            anna.reviews.decide(shadow.id, "accept", reason="yes")


def test_what_a_person_protects_is_changed_by_no_model(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        known(anna, pinned=True)
        say(anna, SAID)
        held = end(anna)
        assert (held.state, held.reason) == ("pending", "pinned_memory")


def test_a_session_is_read_in_one_call_and_only_once(open_tally: OpenTally) -> None:
    model = learner()
    with opened(open_tally, model) as tally:
        anna = tally.bind()
        known(anna)
        for text in ("Good morning!", SAID, "Thanks."):
            say(anna, text)
        services_of(tally).background.runner.run(["learn"])
        assert model.requests == [], "a session that goes on is not read"

        assert Learning(anna).end_session("monday").read == 3
        assert [len(each.new_turns) for each in model.requests] == [3]
        assert Learning(anna).end_session("monday").read == 0

        say(anna, "And good night.")
        tally.drain()
        [_, second] = model.requests
        assert [(each.text, each.is_new) for each in second.turns] == [
            (SAID, False),
            ("Thanks.", False),
            ("And good night.", True),
        ]


def test_a_session_that_is_silent_for_half_an_hour_is_over(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, minutes = learner(), [0]
    moment = 1_700_000_000_000_000
    monkeypatch.setattr(jobs, "database_clock", lambda connection: moment + minutes[0] * 60_000_000)
    with opened(open_sqlite, model) as tally:
        anna, runner = tally.bind(), services_of(tally).background.runner
        for text in ("Good morning!", SAID):
            say(anna, text)
            minutes[0] += 20
            runner.run(["learn"])
            assert model.requests == []
        minutes[0] += 11
        runner.run(["learn"])
        assert [len(each.new_turns) for each in model.requests] == [2]


@pytest.mark.parametrize(
    ("learn_at", "calls"), [("session", []), ("exchange", [2]), ("turn", [1, 1])]
)
def test_a_setting_says_when_a_conversation_is_read(
    open_sqlite: OpenTally, learn_at: str, calls: list[int]
) -> None:
    model = learner()
    with opened(open_sqlite, model, learn_at=learn_at) as tally:
        anna, runner = tally.bind(), services_of(tally).background.runner
        say(anna, SAID)
        runner.run(["learn"])
        other = SourceRef(source_type="other", author="agent")
        anna.remember("Noted.", kind="turn", conversation="monday", speaker="agent", source=other)
        runner.run(["learn"])
        if learn_at == "turn":
            say(anna, "Thanks.")
            runner.run(["learn"])
            calls = [1, 2]
        assert [len(each.new_turns) for each in model.requests] == calls


def test_a_process_that_dies_while_it_learns_loses_nothing_and_repeats_nothing(
    open_sqlite: OpenTally,
) -> None:
    class Dying(ScriptedLearner):
        def learn(self, request: Any) -> Extraction:
            raise SystemExit

    with opened(open_sqlite, Dying()) as tally:
        known(tally.bind())
        say(tally.bind(), SAID)
        tally.drain()
    model = learner()
    with opened(open_sqlite, model) as tally:
        anna = tally.bind()
        tally.drain()
        assert [each.state for each in anna.reviews.list(states=())] == ["applied"]
        tally.drain()
        assert len(model.requests) == 1


def test_a_long_session_is_read_in_several_calls_each_stored_by_itself(
    open_sqlite: OpenTally,
) -> None:
    class Failing(ScriptedLearner):
        def learn(self, request: Any) -> Extraction:
            if len(self.requests) == 1:
                raise ExtractionError("Not now.")
            return super().learn(request)

    model = Failing(lambda text: Extraction(facts=(ExtractedFact(content=f"{text} so."),)))
    with opened(open_sqlite, model, learning="review") as tally:
        anna = tally.bind()
        for number in range(30):
            say(anna, f"I have {number} boats")
        tally.drain()
        assert len(anna.reviews.list(limit=99)) == 24
        model.requests.clear()
        tally.drain()
        assert len(anna.reviews.list(limit=99)) == 30
        assert [len(each.new_turns) for each in model.requests] == [6]


def test_an_agent_gives_a_change_that_passes_the_same_guard(open_tally: OpenTally) -> None:
    model = ScriptedLearner()
    with opened(open_tally, model) as tally:
        anna, agent = tally.bind(), tally.bind(Actor(user="anna", agent="coder"))
        old = known(anna)
        say(anna, SAID)
        stored = agent.remember(NEW, kind="fact", replaces=old, span=SAID)

        assert (stored.change, found(anna)) == ("applied", [NEW])
        assert model.requests == [], "at no extra call"
        [proposal] = anna.reviews.list(states=["applied"])
        assert (proposal.id, proposal.origin, proposal.provider) == (
            stored.proposal_id,
            "agent",
            "coder",
        )
        anna.reviews.decide(proposal.id, "undo", reason="no")
        assert found(anna) == [OLD]


@pytest.mark.parametrize(("text", "state"), [(SAID, "applied"), (QUOTED, "pending")])
def test_a_change_that_is_given_before_its_turn_is_stored_is_judged_when_it_is(
    open_tally: OpenTally, text: str, state: str
) -> None:
    with opened(open_tally, ScriptedLearner()) as tally:
        anna, agent = tally.bind(), tally.bind(Actor(user="anna", agent="coder"))
        old = known(anna)
        with agent.run("coder", metadata={"thread_id": "monday"}) as run:
            stored = agent.remember(NEW, kind="fact", replaces=old, span=SAID)
            assert stored.change == "held"
            agent.keep_turn(run, user=text, assistant="Noted.")
        tally.drain()
        assert anna.reviews.get(stored.proposal_id or "").proposal.state == state
        assert sorted(found(anna)) == ([NEW] if state == "applied" else [OLD, NEW])


@pytest.mark.parametrize(
    ("text", "span", "reason"),
    [
        (QUOTED, SAID, "quoted"),
        (SAID, "I moved to Hamburg", "span_missing"),
        (SAID, None, "span_missing"),
        (None, SAID, "span_missing"),
    ],
)
def test_an_agents_change_that_the_user_did_not_say_is_held(
    open_sqlite: OpenTally, text: str | None, span: str | None, reason: str
) -> None:
    with opened(open_sqlite, ScriptedLearner()) as tally:
        anna = tally.bind()
        old = known(anna)
        if text is not None:
            say(anna, text)
        stored = anna.remember(NEW, kind="fact", replaces=old, span=span)
        assert stored.change == "held"
        assert reason in stored.warnings[-1]
        assert sorted(found(anna)) == [OLD, NEW]
        [hit] = [each for each in anna.recall("Where does Anna live?") if each.memory.id == old]
        assert [each.proposal_id for each in hit.held] == [stored.proposal_id]


def test_without_learning_an_agents_change_waits_for_a_person(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=ANNA) as tally:
        anna = tally.bind()
        old = known(anna)
        say(anna, SAID)
        stored = anna.remember(NEW, kind="fact", replaces=old, span=SAID)
        assert stored.change == "held"
        [waiting] = anna.reviews.list()
        assert anna.reviews.decide(waiting.id, "accept", reason="so").made == stored.id
        assert found(anna) == [NEW]


def test_a_change_that_waits_says_that_its_memory_changed_since(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=ANNA) as tally:
        anna = tally.bind()
        old = known(anna)
        anna.remember(NEW, kind="fact", replaces=old)
        [waiting] = anna.reviews.list()
        anna.forget(old, reason="it is over")
        [now] = anna.reviews.list()
        assert now == waiting.replace(reason="target_changed")
        assert anna.reviews.get(waiting.id).proposal == now


def test_what_an_agent_replaces_holds_until_its_replacement_does(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=ANNA) as tally:
        anna = tally.bind()
        old = known(anna)
        later = services_of(tally).store.clock.now() + 10**15
        held = anna.remember(NEW, kind="fact", replaces=old, valid_from=later)
        anna.reviews.decide(held.proposal_id or "", "accept", reason="so")
        assert found(anna) == [anna.get(old).content]
        anna.reviews.decide(held.proposal_id or "", "undo", reason="not so")
        assert anna.get(old).valid_until is None


def test_nothing_of_another_scope_is_replaced(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=ANNA) as tally:
        his = tally.bind(BOB).remember("Bob lives in Rome.").id
        member = Actor(user="anna", projects={"apollo"})
        anna, project = tally.bind(member), tally.bind(member, scope="project:apollo")
        own = known(anna)
        with pytest.raises(NotFound):
            anna.remember("Bob lives in Kiel.", replaces=his)
        with pytest.raises(InvalidInput, match="another scope"):
            project.remember(NEW, replaces=own)
        with pytest.raises(Denied):
            tally.bind(Actor(user="anna", agent="coder")).reviews.decide(
                anna.remember(NEW, replaces=own).proposal_id or "", "accept", reason="mine"
            )


@pytest.mark.parametrize("given", ["after the turn", "before the turn"])
@pytest.mark.parametrize(
    "turn",
    [
        {"speaker": "bob"},
        {"speaker": None},
        {"speaker": "anna"},
        {"speaker": "anna", "by": "anna", "source": SourceRef(source_type="tool")},
    ],
)
def test_the_words_of_somebody_else_are_no_words_of_the_user(
    open_sqlite: OpenTally, given: str, turn: dict[str, Any]
) -> None:
    """In a scope of several people an agent quotes its own user, and no page, tool or colleague."""
    project = frozenset({"apollo"})
    with opened(open_sqlite, ScriptedLearner()) as tally:
        said = {"by": "bob", **turn}
        writer, anna, agent = (
            tally.bind(Actor(user=user, agent=agent, projects=project), scope="project:apollo")
            for user, agent in ((said.pop("by"), None), ("anna", None), ("anna", "coder"))
        )
        old = known(anna)

        def hear() -> None:
            writer.remember(SAID, kind="turn", conversation="standup", **said)

        if given == "after the turn":
            hear()
        stored = agent.remember(NEW, kind="fact", replaces=old, span=SAID)
        if given == "before the turn":
            hear()
            tally.drain()

        assert stored.change == "held"
        assert anna.reviews.get(stored.proposal_id or "").proposal.state == "pending"
        assert anna.get(old).state == "active"


def test_a_model_stores_no_turn_to_quote_as_the_words_of_its_user(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, ScriptedLearner()) as tally:
        agent = tally.bind(Actor(user="anna", agent="coder"))
        assert memory_store(agent, SAID, kind="turn")["error"] == "InvalidInput"


def test_an_undo_takes_no_words_along_that_a_person_wrote_since(open_tally: OpenTally) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        known(anna)
        say(anna, SAID)
        applied = end(anna)
        assert applied.made is not None
        anna.modify(applied.made, content="Anna lives in Hamburg-Altona.", reason="more exactly")

        with pytest.raises(StateConflict, match="edited since"):
            anna.reviews.decide(applied.id, "undo", reason="a slip of the tongue")
        assert found(anna) == ["Anna lives in Hamburg-Altona."]

        anna.modify(applied.made, content=NEW, reason="as it was")
        anna.reviews.decide(applied.id, "undo", reason="a slip of the tongue")
        assert found(anna) == [OLD]


def test_what_will_end_holds_until_then(open_tally: OpenTally) -> None:
    """I leave at the end of next month: until then I am still there."""
    clock = StepClock()
    last = clock.now() + 30 * 86_400_000_000

    def until(text: str) -> Extraction:
        drawn = learner("ends", content=OLD)._read(text)
        return Extraction(
            facts=tuple(each.model_copy(update={"valid_until": last}) for each in drawn.facts)
        )

    model = ScriptedLearner(until, learner("ends")._change)
    settings = Settings.read(learning="apply")
    with open_tally(settings=settings, owner=ANNA, learning_model=model, clock=clock) as tally:
        anna = tally.bind()
        known(anna)
        say(anna, SAID)
        applied = end(anna)
        assert (applied.action, applied.state, found(anna)) == ("END", "applied", [OLD])
        clock.advance(days=31)
        assert found(anna) == []
        anna.reviews.decide(applied.id, "undo", reason="they kept me")
        assert found(anna) == [OLD]


@pytest.mark.parametrize(("mode", "shown"), [("apply", []), ("review", [NEW])])
def test_what_no_person_looked_at_leaves_recall_with_the_turn_it_was_learned_from(
    open_tally: OpenTally, mode: str, shown: list[str]
) -> None:
    """Forgetting what I said forgets what a model made of it, unless a person accepted that."""
    with opened(open_tally, learner(None), learning=mode) as tally:
        anna = tally.bind()
        turn = say(anna, SAID)
        proposal = end(anna)
        if mode == "review":
            anna.reviews.decide(proposal.id, "accept", reason="so")
        assert found(anna) == [NEW]
        anna.forget(turn, reason="none of its business")
        assert found(anna) == shown
        anna.recover(turn, reason="it may know")
        assert found(anna) == [NEW]


def test_what_was_learned_from_the_running_session_is_shown_in_the_next_one(
    open_tally: OpenTally,
) -> None:
    """The turn is in the prompt already: the fact would say it twice."""
    with opened(open_tally, learner(None), learn_at="turn") as tally:
        anna = tally.bind()
        say(anna, SAID)
        tally.drain()
        assert found(anna) == [NEW]

        def shown(conversation: str, in_prompt: bool = True) -> list[str]:
            question = "Where does Anna live, in Hamburg?"
            chosen = anna.working_set(question, conversation=conversation, in_prompt=in_prompt)
            return [piece.hit.content for piece in chosen.pieces]

        assert shown("monday") == []
        assert shown("monday", in_prompt=False) == [NEW], "its turns were left out of the prompt"
        assert shown("tuesday") == [NEW]


@pytest.mark.parametrize(("said_by", "state"), [("Ben", "pending"), ("Anna", "applied")])
def test_what_the_learner_says_another_said_waits(
    open_sqlite: OpenTally, said_by: str, state: str
) -> None:
    def change(fact: ExtractedFact, facts: Sequence[KnownFact]) -> ExtractedFact | None:
        changed = model._change(fact, facts) if model._change is not None else None
        return None if changed is None else changed.model_copy(update={"said_by": said_by})

    model = learner()
    with opened(open_sqlite, ScriptedLearner(model._read, change)) as tally:
        anna = tally.bind()
        known(anna)
        say(anna, SAID)
        assert end(anna).state == state
