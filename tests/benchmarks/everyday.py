"""Ordinary talk: what memory puts into the prompt of each turn, of what is needed there.

Run it with `make eval-everyday`; DATA=file.json takes other dialogues of the same format. Each
dialogue is told to a tally of its own, turn by turn, at the times that it gives, and each request
is answered by an agent whose middleware keeps what the user says: what stands in the request that
the model gets is what counts. No model runs.

The labels of a turn name the earlier turns that an answer needs, those that help, and the facts
that are over. Beside ours stand FTS5, recall at each turn, and three controls with the same number
of tokens: pieces drawn by chance, the newest ones, and those that tell most, whatever is asked.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from tests.benchmarks.agreement import agreement_measures
from tests.benchmarks.embedders import add_embedders, chosen_embedders
from tests.benchmarks.eval_learning import Script
from tests.benchmarks.eval_recall import OWN_SETS
from tests.benchmarks.eval_recall import load as load_conversations
from tests.benchmarks.languages import SAID, SPEAKERS, UNSPACED
from tests.benchmarks.measures import Measure, figure, least, lines, most

from tallystick import Actor, BoundTally, Tally
from tallystick.ports import Embedder
from tallystick.ranking import analyze
from tallystick.records import Hit, NewMemory, WorkingSet
from tallystick.settings import Settings
from tallystick_langchain import TallyMiddleware
from tallystick_learning import Learning

DATA = Path(__file__).parents[1] / "fixtures" / "everyday" / "dev.json"
UNRELATED = DATA.with_name("unrelated.json")
"""Requests by subject that no dialogue has to do with."""
_TALLIES = 5
"""Dialogues in whose tallies they are asked."""
_BUDGET = Settings().profile_budget
_ADDED = 3
_OTHERS = 600
"""What other people said that is mixed into a scope, at most."""
_NOBODY = ("user", "assistant", "tool")
_CHARS = 4
"""Characters of a token, as tokens are counted here: the same for all of these memories."""


class Turn(NamedTuple):
    """One turn of a dialogue with its labels."""

    id: str
    role: str
    user: str
    session: str
    at: datetime
    text: str
    needs: tuple[frozenset[str], ...] = ()
    """What an answer needs: of each of these one turn."""
    helps: frozenset[str] = frozenset()


class Fact(NamedTuple):
    """A fact that ended: the turn that says it, the one that ends it, and what it says."""

    turn: str
    until: str
    text: str


@dataclass(frozen=True)
class Dialogue:
    """A dialogue over several sessions."""

    name: str
    language: str
    sessions: tuple[tuple[Turn, ...], ...]
    ended: tuple[Fact, ...]
    labels: Mapping[str, Any]
    """The dialogue as the file has it, for a model that knows the labels."""

    @property
    def turns(self) -> Iterator[Turn]:
        """All turns in their order."""
        return (turn for session in self.sessions for turn in session)


class Shown(NamedTuple):
    """A piece in a prompt, with the turn that it is, or that it stems from."""

    turn: str
    text: str
    is_fact: bool = False


def load(path: Path) -> list[Dialogue]:
    """Return the dialogues of a file."""
    return [_dialogue(each) for each in json.loads(path.read_text("utf-8"))["dialogues"]]


def _dialogue(given: dict[str, Any]) -> Dialogue:
    sessions = []
    for session in sorted(given["sessions"], key=lambda each: str(each["date"])):
        start = datetime.fromisoformat(session["date"])
        turns = []
        for place, turn in enumerate(session["turns"]):
            instead = turn.get("instead", {})
            needs = [frozenset({need, *instead.get(need, ())}) for need in turn.get("needs", ())]
            turns.append(
                Turn(
                    turn["id"],
                    turn["role"],
                    session["user"],
                    f"{session['user']}-{session['id']}",
                    start + timedelta(minutes=place),
                    turn["text"],
                    tuple(needs),
                    frozenset(turn.get("helps", ())),
                )
            )
        sessions.append(tuple(turns))
    ended = [
        Fact(each["turn"], each["until"], each["fact"]) for each in given["facts"] if each["until"]
    ]
    return Dialogue(given["id"], given["language"], tuple(sessions), tuple(ended), given)


# Memories


class Memory(Protocol):
    """What is measured: it is told each turn, and asked before each of the user's is answered."""

    keeps: bool
    """True if what it showed stays in the prompt until the session ends."""

    def show(self, turn: Turn) -> list[Shown]:
        """Return what the prompt of a turn has of earlier sessions."""
        ...

    def hear(self, turn: Turn) -> None:
        """Note a turn that was said."""
        ...

    def rest(self, turn: Turn) -> None:
        """Note that the session of a turn, its last one, ended."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class _Clock:
    """Stands at the moment of a turn, and moves a millisecond at each look."""

    def __init__(self) -> None:
        self._at = 0

    def set(self, moment: datetime) -> None:
        self._at = max(self._at, int(moment.timestamp() * 1_000_000))

    def now(self) -> int:
        self._at += 1_000
        return self._at


class _Told:
    """The user's turns of earlier sessions, for memories without a tally."""

    keeps = False

    def __init__(self) -> None:
        self._turns: list[Turn] = []

    def hear(self, turn: Turn) -> None:
        if turn.role == "user":
            self._turns.append(turn)

    def earlier(self, turn: Turn) -> list[Turn]:
        """Return what the same user said in other sessions, oldest first."""
        return [
            each for each in self._turns if each.user == turn.user and each.session != turn.session
        ]

    def rest(self, turn: Turn) -> None:
        pass

    def close(self) -> None:
        pass


class Fts5(_Told):
    """The five best of SQLite's full-text search, whatever their score."""

    def show(self, turn: Turn) -> list[Shown]:
        earlier, words = self.earlier(turn), analyze(turn.text)
        if not earlier or not words:
            return []
        with sqlite3.connect(":memory:") as database:
            database.execute("CREATE VIRTUAL TABLE said USING fts5(words, place UNINDEXED)")
            database.executemany(
                "INSERT INTO said VALUES (?, ?)",
                [(" ".join(analyze(each.text)), place) for place, each in enumerate(earlier)],
            )
            asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
            found = database.execute(
                "SELECT place FROM said WHERE said MATCH ? ORDER BY rank LIMIT 5", (asked,)
            ).fetchall()
        return [Shown(earlier[place].id, earlier[place].text) for (place,) in found]


class Control(_Told):
    """A profile that no look at what is said chose: by chance, or the newest."""

    keeps = True

    def __init__(self, *, seed: int | None) -> None:
        super().__init__()
        self._seed, self._shown = seed, dict[str, list[Shown]]()

    def show(self, turn: Turn) -> list[Shown]:
        if turn.session not in self._shown:
            earlier = self.earlier(turn)[::-1]
            if self._seed is not None:
                random.Random(f"{self._seed} {turn.session}").shuffle(earlier)
            chosen: list[Shown] = []
            free = _BUDGET * _CHARS * 2 // 3
            for each in earlier:
                if len(each.text) <= free:
                    free -= len(each.text)
                    chosen.append(Shown(each.id, each.text))
            self._shown[turn.session] = chosen
        return self._shown[turn.session]


class _OnTally:
    """A memory on a tally of its own."""

    keeps = True

    def __init__(self, *, embedder: Embedder | None = None, **options: Any) -> None:
        self._stack, self.clock = ExitStack(), _Clock()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.tally = self._stack.enter_context(
            Tally.open(
                Path(folder) / "tally",
                clock=self.clock,
                background=False,
                embedder=embedder,
                **options,
            )
        )
        self.turn_of: dict[str, str] = {}
        """The turn that each memory is."""

    def hear(self, turn: Turn) -> None:
        self.clock.set(turn.at)
        if turn.role != "user":
            return
        bound = self.tally.bind(Actor(user=turn.user))
        with bound.run("assistant", metadata={"thread_id": turn.session}) as run:
            for kept in bound.keep_turn(run, user=turn.text):
                self.turn_of[kept.id] = turn.id

    def rest(self, turn: Turn) -> None:
        pass

    def close(self) -> None:
        self._stack.close()


class Recall(_OnTally):
    """What recall finds with confidence at each turn, the three best; nothing is kept."""

    keeps = False

    def show(self, turn: Turn) -> list[Shown]:
        self.clock.set(turn.at)
        bound = self.tally.bind(Actor(user=turn.user))
        found = bound.recall(turn.text, limit=2 * _ADDED, only_confident=True)
        hits = [hit for hit in found if hit.memory.conversation != turn.session][:_ADDED]
        return [Shown(self.turn_of[hit.memory.id], hit.content) for hit in hits]


class Direct(_OnTally):
    """The working set of the session, as `bound.working_set` gives it."""

    def __init__(
        self, *, asks: bool = True, embedder: Embedder | None = None, **options: Any
    ) -> None:
        super().__init__(embedder=embedder, **options)
        self._asks = asks

    def show(self, turn: Turn) -> list[Shown]:
        self.clock.set(turn.at)
        bound = self.tally.bind(Actor(user=turn.user))
        shown: WorkingSet = bound.working_set(
            turn.text if self._asks else "", conversation=turn.session, turn=turn.id
        )
        return [
            Shown(self.turn_of[piece.hit.memory.id], piece.hit.content) for piece in shown.pieces
        ]


class Mixed(Direct):
    """The working set among the memories of other people: what the users of the other dialogues
    and the persons of the small sets of recall said stands in the same scope, by their names.
    """

    def __init__(self, dialogue: Dialogue, *, others: Sequence[Dialogue]) -> None:
        super().__init__()
        said = [
            NewMemory(
                content=turn.text,
                kind="turn",
                speaker=turn.user.title(),
                conversation=f"others/{each.name}-{turn.session}",
                occurred_at=int(turn.at.timestamp() * 1_000_000),
            )
            for each in others
            if each.name != dialogue.name
            for turn in each.turns
            if turn.role == "user"
        ]
        said += [
            NewMemory(
                content=turn.text,
                kind="turn",
                speaker=turn.speaker.title(),
                conversation=f"others/{turn.session}",
                position=turn.position,
                occurred_at=turn.at,
            )
            for path in OWN_SETS
            for conversation in load_conversations(path)
            for turn in conversation.turns
            if turn.speaker not in _NOBODY
        ]
        said += [
            NewMemory(content=text, kind="note", speaker=SPEAKERS.get(language, ("Kim",))[0])
            for language, (texts, _) in {**SAID, **UNSPACED}.items()
            for text in texts
        ]
        said += [
            NewMemory(content=fact["fact"], kind="note", speaker=each.name.title())
            for each in others
            if each.name != dialogue.name
            for fact in each.labels["facts"]
        ]
        self.others = said[:_OTHERS]
        self.clock.set(next(dialogue.turns).at)
        bound = self.tally.bind(Actor(user=next(dialogue.turns).user))
        for made in bound.remember_many(self.others):
            self.turn_of[made.id] = f"another's {made.id}"


class Learned(Direct):
    """The working set where a model learns at the end of each session: a script that knows the
    labels, and is right, or takes every trap and names one wrong target of five.
    """

    def __init__(self, dialogue: Dialogue, *, errs: int | None = None) -> None:
        super().__init__(
            learning_model=Script(dialogue.labels, errs), settings=Settings(learning="apply")
        )

    def rest(self, turn: Turn) -> None:
        Learning(self.tally.bind(Actor(user=turn.user))).end_session(turn.session)
        self.tally.drain()

    def show(self, turn: Turn) -> list[Shown]:
        bound = self.tally.bind(Actor(user=turn.user))
        self.clock.set(turn.at)
        shown: WorkingSet = bound.working_set(turn.text, conversation=turn.session, turn=turn.id)
        return [self._shown(bound, piece.hit) for piece in shown.pieces]

    def _shown(self, bound: BoundTally, hit: Hit) -> Shown:
        if hit.memory.id in self.turn_of:
            return Shown(self.turn_of[hit.memory.id], hit.content)
        origins = [
            self.turn_of[link.to_id]
            for link in bound.explore(hit.memory.id).links
            if (link.kind, link.from_id) == ("DERIVED_FROM", hit.memory.id)
            and link.to_id in self.turn_of
        ]
        return Shown(origins[0] if origins else "", hit.content, is_fact=True)


class Middleware(_OnTally):
    """What the requests of an agent with `TallyMiddleware(tally, capture="user")` have."""

    def __init__(self, dialogue: Dialogue) -> None:
        super().__init__()
        answers = [turn.text for turn in dialogue.turns if turn.role != "user"]
        model = GenericFakeChatModel(messages=(AIMessage(text) for text in answers))
        self._agent: Any = create_agent(
            model,
            [],
            middleware=[TallyMiddleware(self.tally, capture="user", strict=True)],
            checkpointer=InMemorySaver(),
        )

    def show(self, turn: Turn) -> list[Shown]:
        self.clock.set(turn.at)
        actor = Actor(user=turn.user)
        config = {"configurable": {"thread_id": turn.session, "actor": actor}}
        self._agent.invoke({"messages": [{"role": "user", "content": turn.text}]}, config)
        bound = self.tally.bind(actor)
        kept = bound.memories(kinds=["turn"], conversation=turn.session, limit=1)
        self.turn_of[kept[0].id] = turn.id
        run = bound.recordings.runs(limit=1)[0]
        steps = bound.recordings.steps(run.id)
        call = next(step for step in steps if step.step_kind == "model_call")
        seen = bound.recordings.compiled(call.id).compiled.selected_items
        items = [item for item in seen if item.kind == "memory"]
        return [Shown(self.turn_of[item.id], item.content) for item in items]

    def hear(self, turn: Turn) -> None:
        self.clock.set(turn.at)


def _mixed(dialogue: Dialogue) -> Memory:
    return Mixed(dialogue, others=load(DATA))


def _direct(embedder: Embedder, dialogue: Dialogue) -> Memory:
    return Direct(embedder=embedder)


ROWS: dict[str, Callable[[Dialogue], Memory]] = {
    "FTS5, any score": lambda dialogue: Fts5(),
    "recall, each turn": lambda dialogue: Recall(),
    "working set, LangChain": Middleware,
    "working set": lambda dialogue: Direct(),
    "working set, right model": Learned,
    "working set, erring model": partial(Learned, errs=1),
    "working set, others mixed in": _mixed,
    "control: tells most, not asked": lambda dialogue: Direct(asks=False),
    "control: chance": lambda dialogue: Control(seed=1),
    "control: newest": lambda dialogue: Control(seed=None),
}


# Scores


@dataclass
class Score:
    """Counts over the user's turns."""

    turns: int = 0
    needs: int = 0
    met: int = 0
    shown: int = 0
    useful: int = 0
    idle: int = 0
    silent: int = 0
    outdated: int = 0
    new: int = 0
    standing: int = 0

    def add(self, other: Score) -> None:
        """Add the counts of another dialogue."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    def row(self) -> list[str]:
        """Return the columns of the table."""
        return [
            _percent(self.met, self.needs),
            _percent(self.useful, self.shown),
            _percent(self.silent, self.idle),
            str(self.outdated),
            f"{self.new / _CHARS / max(1, self.turns):.0f}",
            f"{self.standing / _CHARS / max(1, self.turns):.0f}",
        ]


OURS, OTHER = "working set", "FTS5, any score"
HEADS = ("needed", "useful", "silent", "outdated alone", "new tokens", "standing tokens")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"


@dataclass
class _Session:
    """What stands in the prompt of a running session."""

    standing: list[Shown] = field(default_factory=list)
    useful: set[Shown] = field(default_factory=set)


def score(memory: Memory, dialogue: Dialogue) -> Score:
    """Tell a dialogue to a memory, and count what its prompts have."""
    total = Score()
    place = {turn.id: number for number, turn in enumerate(dialogue.turns)}
    session_of = {turn.id: turn.session for turn in dialogue.turns}
    for turns in dialogue.sessions:
        session = _Session()
        for turn in turns:
            if turn.role == "user":
                shown = memory.show(turn)
                new = [each for each in shown if each not in session.standing or not memory.keeps]
                session.standing = shown
                _count(total, turn, session, new, keeps=memory.keeps)
                seen = {each.turn for each in shown}
                total.outdated += sum(
                    any(
                        each.turn == fact.turn and (not each.is_fact or each.text == fact.text)
                        for each in shown
                    )
                    and place[fact.until] < place[turn.id]
                    and session_of[fact.turn] != turn.session
                    and session_of[fact.until] != turn.session
                    and fact.until not in seen
                    for fact in dialogue.ended
                )
            memory.hear(turn)
        memory.rest(turns[-1])
    return total


def _count(
    total: Score, turn: Turn, session: _Session, new: Sequence[Shown], *, keeps: bool
) -> None:
    """Count a turn: a piece that stays is useful from the first turn on that wants it."""
    seen = {each.turn for each in session.standing}
    wanted = turn.helps.union(*turn.needs)
    now = {each for each in session.standing if each.turn in wanted}
    useful = now - session.useful if keeps else now
    session.useful |= now
    total.turns += 1
    total.needs += len(turn.needs)
    total.met += sum(not need.isdisjoint(seen) for need in turn.needs)
    total.shown += len(new)
    total.useful += len(useful)
    if not wanted:
        total.idle += 1
        total.silent += not new
    total.new += sum(len(each.text) for each in new)
    total.standing += sum(len(each.text) for each in session.standing)


def measure(dialogues: Sequence[Dialogue], made: Callable[[Dialogue], Memory]) -> dict[str, Score]:
    """Return the score of a memory, in all and by language."""
    scores: dict[str, Score] = {"all": Score()}
    for dialogue in dialogues:
        memory = made(dialogue)
        try:
            counted = score(memory, dialogue)
        finally:
            memory.close()
        for name in ("all", dialogue.language):
            scores.setdefault(name, Score()).add(counted)
    return scores


def answered_unrelated(
    dialogues: Sequence[Dialogue], *, step: int = 1
) -> dict[str, tuple[int, int]]:
    """Return by subject how many unrelated requests a confident recall answers, and how many there
    are; each `step`th is asked.
    """
    subjects = json.loads(UNRELATED.read_text("utf-8"))
    del subjects["licence"]
    counts = dict.fromkeys(subjects, (0, 0))
    for dialogue in dialogues[:_TALLIES]:
        memory = _OnTally()
        try:
            for turn in dialogue.turns:
                memory.hear(turn)
            bound = memory.tally.bind(Actor(user=next(dialogue.turns).user))
            for subject, requests in subjects.items():
                asked = requests[::step]
                answered = sum(
                    len(bound.recall(request, only_confident=True)) > 0 for request in asked
                )
                before = counts[subject]
                counts[subject] = before[0] + answered, before[1] + len(asked)
        finally:
            memory.close()
    return counts


def measures_of(
    dialogues: Sequence[Dialogue], *, step: int = 1, rows: Iterable[str] = ()
) -> Iterator[Measure]:
    """Yield the figures of the rows, by default of all, and how the working set stands beside FTS5.

    The bars are those of a comparison within one run: more of what is needed is shown, a larger
    part of what is shown is useful, more idle turns stay silent, and less is shown that is over.
    """
    scores = {name: measure(dialogues, ROWS[name])["all"] for name in rows or ROWS}
    for name, one in scores.items():
        yield figure(f"{name}: needed, percent", 100 * one.met / max(1, one.needs), "needed")
        yield figure(f"{name}: useful, percent", 100 * one.useful / max(1, one.shown), "useless")
        yield figure(f"{name}: silent, percent", 100 * one.silent / max(1, one.idle), "noise")
        yield figure(f"{name}: outdated alone", one.outdated, "outdated")
        yield figure(
            f"{name}: standing tokens", one.standing / _CHARS / max(1, one.turns), "tokens"
        )
    ours, theirs = scores[OURS], scores[OTHER]
    yield least("needed, times FTS5", ours.met / max(1, theirs.met), 1.3, "needed")
    useful = (ours.useful / max(1, ours.shown)) / (theirs.useful / max(1, theirs.shown))
    yield least("useful, times FTS5", useful, 1, "useless")
    yield least("silent turns more than FTS5", ours.silent - theirs.silent, 1, "noise")
    yield most("outdated more than FTS5", ours.outdated - theirs.outdated, -1, "outdated")
    most_tokens = ours.standing / _CHARS / max(1, ours.turns)
    yield most("standing tokens of the working set", most_tokens, _BUDGET, "tokens")
    counts = answered_unrelated(dialogues, step=step).values()
    answered, asked = (sum(each[place] for each in counts) for place in (0, 1))
    share = 100 * answered / max(1, asked)
    yield most(f"unrelated requests answered of {asked}, percent", share, 5, "noise")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--languages", action="store_true", help="a line for each language too")
    add_embedders(parser)
    chosen = parser.parse_args()
    made_of: dict[str, Callable[[Dialogue], Memory]] = {
        f"working set, {name}": partial(_direct, embedder)
        for name, embedder in chosen_embedders(chosen.embedders).items()
    }
    dialogues = load(chosen.data)
    print(f"| {len(dialogues)} dialogues | {' | '.join(HEADS)} |")
    print("| --- |" + " ---: |" * len(HEADS))
    for name, made in {**ROWS, **made_of}.items():
        scores = measure(dialogues, made)
        for group, counted in scores.items():
            if group == "all" or chosen.languages:
                label = name if group == "all" else f"{name}, {group}"
                print(f"| {label} | {' | '.join(counted.row())} |", flush=True)
    counts = answered_unrelated(dialogues)
    print("\nUnrelated requests that a confident recall answers:")
    for subject, (answered, asked) in counts.items():
        print(f"  {subject}: {answered} of {asked}")
    if chosen.data == DATA:
        print("", *lines([*agreement_measures("everyday")]), sep="\n")


if __name__ == "__main__":
    main()
