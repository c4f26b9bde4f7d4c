"""The matrix of the documentation: what holds in each runtime, and the agent that shows it.

A row plays a small agent for each column. Its cell names the pieces that the agent had; the page is
made of the rows: `WRITE_MATRIX=1 pytest tests/integrations/test_matrix.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.upkeep.proof import search_remains

from .base import Question, Runtime, Script, call
from .ruling import ANNA, ASK, BOT, DENY, Bank, paying

PAGE = Path(__file__).parents[3] / "docs" / "runtimes.md"
COLUMNS = (
    "session",
    "memory",
    "context",
    "recorder",
    "rules",
    "approvals",
    "streaming",
    "async",
)
FACT, QUESTION = "My locker is number 5.", "Which locker is mine?"
EARLIER = [
    f"Tell me of boat {number} in the harbour, and what it weighs." * 5 for number in range(12)
]

OpenTally = Callable[..., Tally]


class Row:
    """A runtime in the matrix. A method for each column plays an agent, and fails where the column
    does not hold.
    """

    title: ClassVar[str]
    page: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    """The packages in which the pieces are."""
    pieces: ClassVar[Mapping[str, str]]
    """The pieces that hold a column, by the column."""
    without: ClassVar[Mapping[str, str]] = {}
    """The columns for which the runtime has no place, and why."""

    def __repr__(self) -> str:
        return self.title

    def line(self) -> str:
        """Return the row of the page. Raises AssertionError for a piece that does not exist."""
        assert {*self.pieces, *self.without} == {*COLUMNS}
        public = {name for each in self.packages for name in importlib.import_module(each).__all__}
        for pieces in self.pieces.values():
            assert {name.partition("(")[0] for name in pieces.split(", ")} <= public, pieces
        cells = [
            ", ".join(f"`{name}`" for name in self.pieces[column].split(", "))
            if column in self.pieces
            else f"– ({self.without[column]})"
            for column in COLUMNS
        ]
        return f"| [{self.title}]({self.page}) | {' | '.join(cells)} |"

    def shows(self, column: str, open_tally: OpenTally) -> None:
        """Play the agent of a column."""
        getattr(self, f"plays_{column}")(open_tally)


class HarnessRow(Row):
    """A runtime that plays scripted agents."""

    runtime: ClassVar[type[Runtime]]
    streamed: ClassVar[str]
    awaited: ClassVar[str]

    def plays_session(self, open_tally: OpenTally) -> None:
        """Two conversations at once go on where they were."""
        with open_tally() as tally:
            said = self.converse(tally, ("a", FACT), ("b", "Hello."), ("a", QUESTION))
        assert FACT in said[2]
        assert FACT not in said[1]

    def converse(self, tally: Tally | BoundTally, *turns: tuple[str, str]) -> list[str]:
        """Say a text in a session, each; return the requests that the model got."""
        raise NotImplementedError

    def erases_a_user(self, open_tally: OpenTally) -> None:
        """No row and no file has a word of a user who is erased: of his sessions, what agents of
        him said and did, what they remembered, and a call that waits.
        """
        words = [f"pelican{number}zq" for number in range(9)]
        said, asked, answer, system, argument, result, noted, waiting, other = words
        root, ben = Actor(user="root", role="operator"), Actor(user="ben")
        owed = paying({"to": waiting, "euros": 13})

        def weigh(what: str) -> str:
            """Weigh."""
            return f"{what}: {result}"

        with open_tally(owner=root, rules=[ASK]) as tally:
            bound = tally.bind(BOT)
            tally.bind(ben).remember(f"Locker {other}.")
            if "session" not in self.without:
                self.converse(bound, ("a", f"Mine is {said}."))
            script = Script([call("weigh", what=argument)], answer)
            options = {"recorded": bound, "ruled": bound, "remembering": bound, "system": system}
            self.runtime().run(script, [weigh], prompt=asked, **options)
            self.runtime().run(owed, Bank().tools, recorded=bound, ruled=bound)
            self.runtime().use_tool(bound, "memory_store", {"content": f"Locker {noted}."})

            held = {word for word in words if places_of(tally.bind(root), word)}
            missing = {*words} - held
            assert missing == ({said} if "session" in self.without else set()), missing
            erase(tally.bind(root), str(ANNA.user))
            left = {word: places_of(tally.bind(root), word) for word in words}
            assert [word for word in words if left[word]] == [other], left

    def plays_memory(self, open_tally: OpenTally) -> None:
        """What was said elsewhere is in the request."""
        with open_tally() as tally:
            bound, script = tally.bind(), Script("Number 5.")
            bound.remember(FACT)
            self.runtime().run(script, prompt=QUESTION, remembering=bound)
        assert FACT in script.sent[0]

    def plays_context(self, open_tally: OpenTally) -> None:
        """A long conversation fits a budget, and its latest request is in it."""
        sent = {}
        with open_tally() as tally:
            for budget in (400, 32_000):
                script = Script(*("So." for _ in EARLIER), "Five.")
                self.runtime().run(
                    script,
                    earlier=EARLIER,
                    prompt=QUESTION,
                    remembering=tally.bind(),
                    budget=budget,
                )
                sent[budget] = script.sent[-1]
        assert [EARLIER[0] in each for each in sent.values()] == [False, True]
        assert [QUESTION in each for each in sent.values()] == [True, True]

    def plays_recorder(self, open_tally: OpenTally) -> None:
        """A run is recorded with its calls, and its receipts are whole."""
        bank = Bank()
        with open_tally() as tally:
            bound = tally.bind()
            self.runtime().run(paying({"to": "zoe", "euros": 5}), bank.tools, recorded=bound)
            _recorded(bound, {"model_call": 2, "tool_call": 1})

    def plays_rules(self, open_tally: OpenTally) -> None:
        """A denied call does not happen."""
        bank = Bank()
        with open_tally(rules=[DENY]) as tally:
            outcome = self.runtime().run(
                paying({"to": "ben", "euros": 13}), bank.tools, ruled=tally.bind(BOT)
            )
        assert (outcome.text, bank.paid) == ("done", [])

    def plays_approvals(self, open_tally: OpenTally) -> None:
        """A call waits for a person, and happens once who agrees."""
        bank, asked = Bank(), []

        def agree(question: Question) -> bool:
            asked.append((question.name, list(bank.paid)))
            return True

        with open_tally(rules=[ASK]) as tally:
            self.runtime().run(
                paying({"to": "ben", "euros": 13}),
                bank.tools,
                ruled=tally.bind(BOT),
                answers=agree,
            )
        assert (asked, bank.paid) == ([("pay", [])], [("ben", 13)])

    def plays_streaming(self, open_tally: OpenTally) -> None:
        """An answer comes in pieces, and is recorded whole."""
        pieces: list[str] = []
        with open_tally() as tally:
            bound, script = tally.bind(), Script("It is number 5.")
            self.runtime(self.streamed).run(script, recorded=bound, pieces=pieces)
            steps = _recorded(bound, {"model_call": 1})
            [step] = steps["model_call"]
            assert "It is number 5." in str(
                [entry.payload for entry in bound.recordings.entries(step)]
            )
        assert len(pieces) > 1
        assert "".join(pieces) == "It is number 5."

    def plays_async(self, open_tally: OpenTally) -> None:
        """An awaited agent remembers, calls and is recorded alike."""

        def double(value: int) -> int:
            """Twice."""
            return 2 * value

        with open_tally() as tally:
            bound = tally.bind()
            bound.remember(FACT)
            script = Script([call("double", value=5)], "Ten.")
            self.runtime(self.awaited).run(
                script, [double], prompt=QUESTION, remembering=bound, recorded=bound
            )
            _recorded(bound, {"model_call": 2, "tool_call": 1})
        assert FACT in script.sent[0]


def _recorded(bound: BoundTally, kinds: Mapping[str, int]) -> Mapping[str, list[str]]:
    """Compare the only run with what it has to hold; return the ids of its steps by kind."""
    [run] = bound.recordings.runs()
    found: dict[str, list[str]] = {}
    for step in bound.recordings.steps(run.id):
        found.setdefault(step.step_kind, []).append(step.id)
    assert run.status == "completed"
    assert {kind: len(found[kind]) for kind in kinds} == kinds
    assert bound.recordings.verify(run.id).ok
    return found


def erase(root: BoundTally, user: str) -> None:
    """Erase a user."""
    token = root.operator.erase_user(user, reason="she left").confirm_token
    root.operator.erase_user(user, reason="she left", mode="apply", confirm_token=token)


def places_of(root: BoundTally, word: str) -> tuple[str, ...]:
    """Return the columns, threads and files that hold a word, in whatever form it is stored."""
    memory = services_of(root.tally).memory
    memory.store.database.flush()
    remains = search_remains(memory, root.actor, (), [word])
    assert remains is not None
    return remains.problems


def compare(rows: list[Row], *, write: bool) -> None:
    """Compare the rows of the page with these, or write these. Raises AssertionError."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines()
    for row in rows:
        place = [n for n, line in enumerate(lines) if line.startswith(f"| [{row.title}](")]
        assert len(place) == 1, f"{PAGE.name} has no row of {row.title}"
        if write:
            lines[place[0]] = row.line()
        else:
            assert lines[place[0]] == row.line()
    if write:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
