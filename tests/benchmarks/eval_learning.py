"""`make eval-learning DATA=everyday.json`: what becomes of the changes of everyday dialogues where
`learning` is `apply`, by a scripted model that is right and by one that errs.

It measures the machinery around a model and no model: the scripts know the labels. The one that
errs takes every trap for a change and names a wrong target for one change of five, in five rounds
for each of them once. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from tallystick import Actor, BoundTally, Tally
from tallystick.ports import StructuredAnswer
from tallystick.records import MemoryState, Proposal, ProviderDeclaration
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick.tokens.estimate import PiecesCounter
from tallystick_learning import Learning
from tallystick_learning.learning_jobs import LEARN

_CLAUSE = re.compile(r"[^.,;:!?()。，；：！？\n]+")
_MARKS = re.compile('["“„「>]|\n')
_EACH = 5
"""Of so many changes the erring model takes one for that of another fact."""


def _words(text: str) -> set[str]:
    """Return the beginnings of the words of a text; of scripts without spaces its pairs."""
    low = text.lower()
    pairs = {a + b for a, b in pairwise(low) if "\u3040" <= a <= "\u9fff"}
    return pairs | {word[:5] for word in re.findall(r"[^\W_\u3040-\u9fff]{2,}", low)}


def _span(text: str, fact: str) -> str:
    """Return the clause of a turn that shares most with a fact."""
    found = [match for match in _CLAUSE.finditer(text) if match[0].strip()]
    stated = [each for each in found if text[each.end() : each.end() + 1] not in ("?", "？")]
    clauses = [each[0].strip() for each in stated or found]
    return max(clauses, key=lambda each: len(_words(each) & _words(fact)))


@dataclass
class Script:
    """A model that answers by the labels of a dialogue."""

    dialogue: Mapping[str, Any]
    errs: int | None = None
    """The place of the wrong targets among `_EACH` changes; None for a model that is right."""
    calls: int = 0
    tokens: int = 0
    """Of what it was sent."""
    changes: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    """By the words of a change with a wrong target, the target that it named."""
    traps: dict[str, bool] = field(default_factory=dict)
    """By the words of a change that is none, whether they were quoted or pasted."""

    @property
    def declaration(self) -> ProviderDeclaration:
        """Its name, and that it is on this machine."""
        return ProviderDeclaration(name="scripted", model="s-1", local=True)

    def answer(self, instructions: str, text: str, schema: Any) -> StructuredAnswer:
        """Return what the labels say of the new turns."""
        asked = json.loads(text)
        self.calls += 1
        self.tokens += PiecesCounter().count(instructions) + PiecesCounter().count(text)
        labels = {text: label for label, (_, text) in asked["known"].items()}
        facts = [
            {"turn": label, **fact}
            for label, (speaker, said) in asked["said"].items()
            if speaker == asked["author"]
            for fact in self._facts(said, labels)
        ]
        return StructuredAnswer({"facts": facts})

    def _facts(self, said: str, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        of_turn = {
            turn["id"]: turn["text"] for each in self.dialogue["sessions"] for turn in each["turns"]
        }
        olds = {fact["id"]: fact for fact in self.dialogue["facts"]}
        for fact in self.dialogue["facts"]:
            if of_turn[fact["turn"]] == said:
                replaced = [old for old in olds.values() if old["by"] == fact["id"]]
                for old in replaced or [None]:
                    yield self._fact(said, fact["fact"], fact["kind"], old, "replaces", labels)
            if fact["until"] and not fact["by"] and of_turn[fact["until"]] == said:
                yield self._fact(said, fact["withdrawn"], "fact", fact, "ends", labels)
        for trap in self.dialogue["traps"] if self.errs is not None else ():
            if of_turn[trap["turn"]] == said:
                for must_not in trap["must_not_change"]:
                    yield from self._trap(said, must_not, labels)

    def _fact(
        self,
        said: str,
        words: str,
        kind: str,
        old: Mapping[str, Any] | None,
        change: str,
        labels: Mapping[str, str],
    ) -> dict[str, Any]:
        answer = {"text": words, "kind": kind, "span": _span(said, words), "sure": 95}
        if old is None or old["fact"] not in labels:
            return answer
        target = old["fact"]
        self.changes += 1
        others = [each for each in labels if each != target]
        if self.errs == self.changes % _EACH and others:
            target = others[self.changes % len(others)]
            self.wrong[words] = target
        return {**answer, "change": change, "target": labels[target], "was": old["fact"]}

    def _trap(self, said: str, known: str, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        if known in labels:
            quoted = re.search('["“„「](.+?)["”“」]', said, re.DOTALL)
            words = (quoted[1] if quoted else said.splitlines()[-1].lstrip("> ")).strip()
            self.traps[words] = _MARKS.search(said) is not None
            span = words if words in said else _span(said, words)
            if quoted and (self.errs or 0) % 2:
                # It cites what stands before the quotation instead.
                span = said[: quoted.start()].strip() or span
            target = {"change": "replaces", "target": labels[known], "was": known}
            yield {"text": words, "span": span, "sure": 95, **target}


@dataclass
class Figures:
    """Counts over dialogues."""

    counts: Counter[str] = field(default_factory=Counter)

    def share(self, part: str, whole: str) -> float:
        """Return a part of a whole; 0 of none."""
        return self.counts[part] / self.counts[whole] if self.counts[whole] else 0.0


def run(
    dialogues: list[dict[str, Any]],
    figures: Figures,
    *,
    errs: int | None = None,
    learn_at: str = "session",
) -> Counter[str]:
    """Play dialogues to tallies that learn, and count what became of their changes."""
    for dialogue in dialogues:
        script, clock = Script(dialogue, errs), StepClock()
        with (
            tempfile.TemporaryDirectory() as folder,
            Tally.open(
                Path(folder) / "tally",
                settings=Settings.read(learning="apply", learn_at=learn_at),
                learning_model=script,
                clock=clock,
                background=False,
            ) as tally,
        ):
            views = _play(tally, clock, dialogue)
            for view in views:
                _count(view, dialogue, script, figures.counts)
        figures.counts["calls"] += script.calls
        figures.counts["tokens"] += script.tokens
    return figures.counts


def _play(tally: Tally, clock: StepClock, dialogue: Mapping[str, Any]) -> list[BoundTally]:
    """Let the users say their turns, session by session."""
    views: dict[str, BoundTally] = {}
    for session in sorted(dialogue["sessions"], key=lambda each: each["date"]):
        user = session["user"]
        bound = views.setdefault(user, tally.bind(Actor(user=user)))
        begins = datetime.fromisoformat(session["date"]).replace(tzinfo=UTC)
        for number, turn in enumerate(session["turns"]):
            at = (begins + timedelta(minutes=number)).timestamp()
            clock.advance(seconds=max(0.0, at - clock.now() / 1_000_000))
            with bound.run("assistant", metadata={"thread_id": session["id"]}) as run_:
                bound.keep_turn(run_, **{turn["role"]: turn["text"]})
            services_of(tally).background.runner.run([LEARN])
        Learning(bound).end_session(session["id"])
    return list(views.values())


def _count(
    view: BoundTally, dialogue: Mapping[str, Any], script: Script, counts: Counter[str]
) -> None:
    own = {each["id"] for each in dialogue["sessions"] if each["user"] == view.actor.user}
    session_of = {
        turn["id"]: session["id"] for session in dialogue["sessions"] for turn in session["turns"]
    }
    counts["turns"] += sum(
        turn["role"] == "user"
        for session in dialogue["sessions"]
        if session["id"] in own
        for turn in session["turns"]
    )
    proposals: list[Proposal] = view.reviews.list(states=(), limit=500)
    facts = {each["id"]: each for each in dialogue["facts"] if session_of[each["turn"]] in own}
    targets = {each.id: each for each in view.memories(limit=500, states=_STATES)}
    changed = {
        (targets[each.target].content, each.content.content): each
        for each in proposals
        if each.target in targets and each.content is not None
    }
    for fact in facts.values():
        if not fact["until"]:
            continue
        new = facts[fact["by"]]["fact"] if fact["by"] else fact["withdrawn"]
        proposal = changed.get((fact["fact"], new))
        counts["changes"] += 1
        counts["right applied"] += proposal is not None and proposal.state == "applied"
        counts["right held"] += proposal is not None and proposal.is_open
        if proposal is None or proposal.state != "applied":
            why = "old fact unknown" if proposal is None else proposal.reason
            show(f"    not applied ({why}): {fact['fact']} -> {new}")
    for proposal in proposals:
        words = "" if proposal.content is None else proposal.content.content
        target = targets[proposal.target].content if proposal.target in targets else None
        is_trap, is_wrong = words in script.traps, script.wrong.get(words) == target != None  # noqa: E711
        if proposal.target is None or not (is_trap or is_wrong):
            continue
        kind = "wrong" if is_wrong else "pasted" if script.traps[words] else "trap"
        counts[f"{kind} changes"] += 1
        counts[f"{kind} applied"] += proposal.state == "applied"
        counts["visible"] += proposal.is_open or proposal.state == "applied"
        counts["mistakes"] += 1
        if proposal.state == "applied":
            show(f"    applied by mistake ({kind}): {target} -> {words}")
            counts["to undo"] += 1
            counts["undone"] += _undone(view, proposal)


_STATES: tuple[MemoryState, ...] = ("active", "hidden", "superseded", "deleted")


def _undone(view: BoundTally, proposal: Proposal) -> bool:
    """Take a change back; return True if its target holds again."""
    view.reviews.decide(proposal.id, "undo", reason="it was never said")
    target = view.get(proposal.target or "")
    return (target.state, target.valid_until) == ("active", None)


BARS: Mapping[str, tuple[tuple[str, str, str, float, float], ...]] = {
    "A model that is right": (("right changes applied", "right applied", "changes", 0.9, 1.0),),
    "A model that errs": (
        ("wrong targets applied", "wrong applied", "wrong changes", 0.0, 0.02),
        ("changes from quoted or pasted text applied", "pasted applied", "pasted changes", 0, 0),
        ("other traps applied", "trap applied", "trap changes", 0.0, 1.0),
        ("mistakes visible", "visible", "mistakes", 1.0, 1.0),
        ("applied mistakes undone in one step", "undone", "to undo", 1.0, 1.0),
    ),
}


def show(line: str) -> None:
    """Print a line about one change, where `--misses` asks for them."""
    if "--misses" in sys.argv:
        print(line)


def main() -> int:
    """Print every figure beside its bar; return 1 where one is missed."""
    dialogues = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["dialogues"]
    missed = 0
    for title, bars in BARS.items():
        print(title)
        figures = Figures()
        counts = figures.counts
        for errs in range(_EACH) if "errs" in title else (None,):
            run(dialogues, figures, errs=errs)
        for name, part, whole, low, high in bars:
            share = figures.share(part, whole)
            is_missed = bool(counts[whole]) and not low <= share <= high
            missed += is_missed
            print(
                f"  {name:45} {counts[part]:4} of {counts[whole]:4} {100 * share:6.1f} %"
                f"   {'MISSED' if is_missed else ''}"
            )
    print("What it costs per 1,000 turns of users, by when a conversation is read")
    for learn_at in ("session", "exchange", "turn"):
        counts = run(dialogues, Figures(), learn_at=learn_at)
        calls, tokens = (1_000 * counts[each] / counts["turns"] for each in ("calls", "tokens"))
        print(f"  {learn_at:10} {calls:6.0f} calls {tokens:10,.0f} tokens in")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
