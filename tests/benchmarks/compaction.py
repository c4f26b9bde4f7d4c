"""Sixty turns of which old ones hold the answer: what a request of 4,000 tokens carries, with
`compaction="cut"` and with `"summary"`.

Run it with `python -m tests.benchmarks.compaction`. A conversation was remembered turn by turn,
each turn a report of about 700 tokens on one ship: talk of the day, and five facts in it. A request
asks after one trait of six ships at once, and the twelve turns that recall finds are compiled;
counted is the share of the values asked for that stand in what is sent, where the facts have words
of their own and where they have the request's.

cut          sentences by the words of the request, made in the compile
extractive   summaries of the text's own sentences: no summarizer was given
scribe       summaries by a scripted summarizer that keeps the sentences with a number or a name, as
             a model would, and is never told what is asked
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.measures import Measure, figure, least, lines, missed

from tallystick import Actor, Tally
from tallystick.ports import Summarizer
from tallystick.records import ContextItem, ProviderDeclaration

BUDGET, TURNS, OF_QUESTION, QUESTIONS = 4_000, 60, 6, 60
BAR = 5.0
_FIRST = ("Sea", "North", "Storm", "Gold", "Ice", "Moon")
_LAST = ["adler", "wind", "stern", "falke", "rose", "otter", "mark", "hild", "gard", "wulf"]
_SHIPS = [f"{first}{last}" for first in _FIRST for last in _LAST]
_WORDS = [
    "Brandt",
    "Lorenz",
    "Petri",
    "Okafor",
    "Silva",
    "Nygaard",
    "Hale",
    "Ferrari",
    "Kowal",
    "Mbeki",
    "Sato",
    "Vargas",
    "Weiss",
    "Dahl",
    "Iversen",
    "Bakker",
]
_GOODS = [
    "amber",
    "tin",
    "salt",
    "hemp",
    "copper",
    "wax",
    "furs",
    "tar",
    "rye",
    "wool",
    "glass",
    "tea",
    "silk",
    "lead",
    "cork",
    "oak",
]
_TRAITS = {
    "captain": "{value} took command on the bridge that week.",
    "cargo": "The holds were filled to the hatches with {value}.",
    "draught": "Soundings put her at {value} metres below the line.",
    "berth": "The harbour master waved them in at number {value}.",
    "debt": "The ledger closed {value} thalers short.",
}
_TALK = (
    "The wind went round to the west and everybody was glad of a dry deck again",
    "There was talk at supper of the old days and of who had married whom",
    "The ropes were looked at, put away and looked at once more before the evening",
    "Nobody could say whether the fog would lift before the tide had turned",
    "The cook had made the soup that nobody likes and everybody finished it",
    "We stood at the rail for a long while and watched the birds behind the ship",
)


class Turn(NamedTuple):
    """A turn, and what it says by the name of a trait."""

    ship: str
    text: str
    values: dict[str, str]


class Scribe:
    """A summarizer without a model: it keeps the sentences that name or count something."""

    declaration = ProviderDeclaration(name="scribe", model="scripted", local=True)

    def summarize(self, text: str, *, max_tokens: int) -> str:
        sentences = re.split(r"(?<=\.)\s+", text)
        says = [each for each in sentences if re.search(r"\d|(?<=[a-z,] )[A-Z]|filled", each)]
        return " ".join(says)[: 4 * max_tokens]


def turns_of(seed: int, *, own_words: bool) -> list[Turn]:
    """Return sixty turns, the same for a seed."""
    chance, turns = random.Random(seed), list[Turn]()
    for ship in chance.sample(_SHIPS, TURNS):
        values = {
            "captain": f"{chance.choice(_WORDS)}-{chance.choice(_WORDS)}",
            "cargo": f"{chance.choice(_GOODS)} and {chance.choice(_GOODS)}",
            "draught": f"{chance.randint(3, 9)}.{chance.randint(10, 99)}",
            "berth": str(chance.randint(100, 999)),
            "debt": str(chance.randint(1_000, 9_999)),
        }
        said = [
            ("" if own_words else f"Of the {trait}: ") + _TRAITS[trait].format(value=value)
            for trait, value in values.items()
        ]
        talk = [f"{chance.choice(_TALK)}, {chance.choice(_WORDS).lower()}." for _ in range(40)]
        for sentence in said:
            talk.insert(chance.randrange(len(talk)), sentence)
        turns.append(Turn(ship, f"Report of the {ship}. {' '.join(talk)}", values))
    return turns


def evidence(
    turns: Sequence[Turn], questions: int, *, compaction: Any, summarizer: Summarizer | None
) -> float:
    """Return the percentage of what was asked for that a request carries, in the second round: the
    first leaves its wishes to the jobs.
    """
    chance = random.Random(7)
    asked = [
        (chance.sample(list(turns), OF_QUESTION), chance.choice(list(_TRAITS)))
        for _ in range(questions)
    ]
    options: Any = {} if summarizer is None else {"summarizer": summarizer}
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", background=False, **options) as tally,
    ):
        anna = tally.bind(Actor(user="anna"))
        anna.remember_many(
            [{"content": turn.text, "kind": "turn", "conversation": "log"} for turn in turns]
        )
        for answers in (False, True):
            right = total = 0
            for ships, trait in asked:
                names = ", ".join(turn.ship for turn in ships)
                question = f"What is the {trait} of the {names}?"
                items = [ContextItem(id="q", kind="user_msg", content=question)]
                recalled = anna.recall(question, limit=2 * OF_QUESTION)
                compiled = anna.compile(
                    [*items, *(hit.memory for hit in recalled)],
                    budget=BUDGET,
                    compaction=compaction,
                )
                sent = "\n".join(item.content for item in compiled.selected_items)
                total += len(ships)
                right += sum(turn.values[trait] in sent for turn in ships)
            if not answers:
                tally.drain()
        return 100 * right / total


def measures(questions: int = QUESTIONS) -> Iterator[Measure]:
    """Yield what each arm carries, and what a summarizer's summaries gain beside the bar."""
    arms: dict[str, tuple[str, Summarizer | None]] = {
        "cut": ("cut", None),
        "extractive": ("summary", None),
        "scribe": ("summary", Scribe()),
    }
    carried: dict[tuple[str, str], float] = {}
    for words in ("own", "same"):
        turns = turns_of(1, own_words=words == "own")
        for name, (arm, summarizer) in arms.items():
            share = evidence(turns, questions, compaction=arm, summarizer=summarizer)
            carried[name, words] = share
            yield figure(f"answers carried, {name}, {words} words, percent", share, "not carried")
    gain = carried["scribe", "own"] - carried["cut", "own"]
    name = "answers carried by a summarizer's summaries more than by cuts, points"
    yield least(name, round(gain, 6), BAR, "not carried")


def main() -> int:
    """Print every figure; return 1 where the bar is missed."""
    found = list(measures())
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
