"""`make eval-pipeline`: what becomes of the proposals of a scripted model, right and wrong ones.

It measures the machinery around a model and no model: nothing is applied by itself, what a model
says of memories that it was not shown is discarded, a person's decision is carried out and can be
taken back, and names and relations that a model finds reach recall. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence

from tests.benchmarks.measures import Measure, figure, least, lines, missed, most

from tallystick import Actor, BoundTally, Tally
from tallystick.errors import StateConflict
from tallystick.records import (
    ExtractedEntity,
    ExtractedFact,
    ExtractedRelation,
    Extraction,
    KnownFact,
    Proposal,
)
from tallystick.settings import Settings
from tallystick.testing import ScriptedLearner

ANNA, BOB = Actor(user="anna", role="operator"), Actor(user="bob")
PEOPLE = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Ines", "Jonas")
SURNAMES = ("Becker", "Visser", "Moreau", "Costa", "Nowak", "Silva", "Larsen", "Romano", "Haas")
PLACES = ("Utrecht", "Leiden", "Delft", "Gouda", "Breda", "Venlo", "Assen", "Zwolle", "Tilburg")
MISTAKES = ("swapped", "invented", "foreign")
"""Ways to be wrong: another memory that it was shown, none, one of another user."""


class Model:
    """A model that draws each text whole as one fact, and knows what it replaces; if it errs, each
    second change is wrong in one of the ways in turn.
    """

    def __init__(self, *, errs: bool) -> None:
        self._errs, self._calls = errs, 0
        self.foreign = ""
        """A memory of another user."""
        self.replaced: dict[str, str] = {}
        """By text, the content of the memory that it replaces."""
        self.mistakes: dict[str, str] = {}
        """By text, the way in which its change was wrong."""
        self.learner = ScriptedLearner(
            lambda text: Extraction(facts=(ExtractedFact(content=text, confidence=90),)),
            self._change,
        )

    def _change(self, fact: ExtractedFact, known: Sequence[KnownFact]) -> ExtractedFact:
        by_text = {each.text: each.id for each in known}
        target = by_text.pop(self.replaced[fact.content], "k99")
        self._calls += 1
        if self._errs and self._calls % 2 == 0:
            mistake = MISTAKES[self._calls // 2 % len(MISTAKES)]
            self.mistakes[fact.content] = mistake
            target = {
                "swapped": next(iter(by_text.values()), "k99"),
                "invented": "k99",
                "foreign": self.foreign,
            }[mistake]
        return fact.model_copy(update={"change": "replaces", "target": target})


def proposals_of(model: Model) -> dict[str, float]:
    """Return what becomes of decisions about forty memories, and of a person's word on them."""
    with Tally.open(
        ":memory:",
        owner=ANNA,
        background=False,
        settings=Settings(learning="review"),
        learning_model=model.learner,
    ) as tally:
        anna = tally.bind()
        model.foreign = tally.bind(BOB).remember("Bob lives in Rome.", mode="raw").id
        ids: dict[str, str] = {}
        for number in range(40):
            person = f"{PEOPLE[number % 10]} {SURNAMES[number // 10]}"
            before = f"{person} lives in {PLACES[number % 9]}."
            ids[before] = anna.remember(before, mode="raw").id
            model.replaced[f"{person} moved to {PLACES[(number + 4) % 9]}."] = before
        anna.remember_many(list(model.replaced))
        tally.drain()

        changed = sum(anna.get(each).state != "active" for each in ids.values())
        right, void = 0, list[bool]()
        for proposal in anna.reviews.list(states=(), limit=500):
            text = proposal.content.content if proposal.content else ""
            mistake = model.mistakes.get(text)
            if mistake in ("invented", "foreign"):
                void.append(proposal.state == "discarded")
            elif mistake is None:
                is_right = proposal.target == ids[model.replaced[text]]
                right += proposal.state == "pending" and is_right
        kept = [_review(anna, each) for each in anna.reviews.list(limit=500)]
        return {
            "changed without a person": changed,
            "right ones that wait": right / (len(model.replaced) - len(model.mistakes)),
            "void ones discarded": sum(void) / len(void) if void else 1.0,
            "carried out and taken back": sum(kept) / len(kept),
        }


def _review(bound: BoundTally, proposal: Proposal) -> bool:
    """Accept a proposal and take it back; return True if that changed its target and then brought
    it back. One whose target changed since, by another proposal, is refused.
    """
    target = proposal.target or ""
    before = bound.get(target)
    try:
        bound.reviews.decide(proposal.id, "accept", reason="the model says so")
    except StateConflict:
        return before.version != proposal.target_version
    changed = bound.get(target).state
    bound.reviews.decide(proposal.id, "undo", reason="it was right")
    after = bound.get(target)
    return changed == "superseded" and (after.state, after.content) == ("active", before.content)


_HOPS = (
    ("{} reports to {}.", "Where does the boss of {} live?", "{} lives in {} with two cats."),
    ("Last year {} married {}.", "Where was the spouse of {} born?", "{} was born in {} in May."),
    ("{} works at {} Labs.", "In which town is the employer of {}?", "{} Labs is a firm in {}."),
)


def questions_over_two_memories() -> dict[str, float]:
    """Return how often the memory that answers a question over two memories is among the first ten
    of recall, with the graph and without: "Where does the boss of Anna Becker live?" names neither
    the boss nor the place, and many others live somewhere.
    """
    names = [f"{person} {surname}" for surname in SURNAMES for person in PEOPLE]
    random.Random(3).shuffle(names)
    pairs = list(zip(names[::2], names[1::2], strict=True))
    script: dict[str, Extraction] = {}
    questions: list[tuple[str, str]] = []
    for number, (first, second) in enumerate(pairs):
        said, question, answer = _HOPS[number % len(_HOPS)]
        place = PLACES[number % len(PLACES)]
        named = tuple(ExtractedEntity(name=each, kind="person") for each in (first, second))
        related = ExtractedRelation(source=first, relation="related_to", target=second)
        script[said.format(first, second)] = Extraction(entities=named, relations=(related,))
        script[answer.format(second, place)] = Extraction(entities=named[1:])
        questions.append((question.format(first), answer.format(second, place)))
    shares, model = {}, ScriptedLearner(script)
    for graph in (False, True):
        settings = Settings(graph=graph, learning="review")
        with Tally.open(
            ":memory:", settings=settings, learning_model=model, background=False
        ) as tally:
            anna = tally.bind()
            anna.remember_many(list(script))
            tally.drain()
            hits = [anna.recall(question, limit=10) for question, _ in questions]
            found = sum(
                answer in {hit.content for hit in each}
                for each, (_, answer) in zip(hits, questions, strict=True)
            )
        shares["with the graph" if graph else "without"] = found / len(questions)
    return {f"R@10, {name}": share for name, share in shares.items()}


def measures() -> Iterator[Measure]:
    """Yield every figure beside its bar."""
    for model, errs in (("a right model", False), ("a model that errs", True)):
        changed, waiting, void, undone = proposals_of(Model(errs=errs)).values()
        yield most(f"{model}: changed without a person", changed, 0, "wrong change")
        yield least(f"{model}: right ones that wait", waiting, 1, "lost proposal")
        yield least(f"{model}: void ones discarded", void, 1, "wrong target")
        yield least(f"{model}: carried out and taken back", undone, 1, "review")
    shares = questions_over_two_memories()
    yield figure("questions over two memories: R@10, without", shares["R@10, without"], "recall")
    with_it = shares["R@10, with the graph"]
    yield least("questions over two memories: R@10, with the graph", with_it, 0.7, "recall")


def main() -> int:
    """Print every figure beside its bar; return 1 where one is missed."""
    found = list(measures())
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
