"""What the words of a fact let a model decide about a memory."""

from __future__ import annotations

import pytest

from tallystick.pipeline.decide import Thresholds, check_decisions
from tallystick.records import DecisionCandidate, ExtractedFact, MemoryDecision


def _verdict(before: str, after: str, action: str = "UPDATE", *others: str) -> str:
    """Return the verdict on a decision of a sure model about `before`, which recall finds alike."""
    texts = (before, *others)
    candidates = [
        DecisionCandidate.load(
            {
                "id": f"m{place}",
                "content": text,
                "kind": "fact",
                "version": 1,
                "score": 0.1 if place else 0.5,
            }
        )
        for place, text in enumerate(texts)
    ]
    fact = ExtractedFact.load({"content": after, "kind": "fact", "confidence": 95})
    decision = MemoryDecision.load(
        {"fact": 0, "action": action, "target": "m0", "confidence": 95, "reason": ""}
    )
    [checked] = check_decisions(
        [fact], [candidates], [decision], text=after, thresholds=Thresholds()
    )
    return checked.verdict


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The garden gate is painted white.", "We painted the garden gate blue on Sunday."),
        ("My bike is at the repair shop.", "I picked up my bike from the repair shop."),
        ("Meine Tochter spielt Geige.", "Meine Tochter hat die Geige verkauft."),
        ("La palestra sotto casa è aperta.", "La palestra sotto casa ha chiuso."),
        ("My laptop has 16 GB of RAM.", "I upgraded the laptop to 32 GB."),
        ("Onboarding takes two weeks.", "We shortened onboarding to three days."),
        ("Reviews need one approval.", "Reviews need two approvals."),
        ("Der Laden öffnet um neun.", "Der Laden öffnet erst um zehn."),
    ],
)
def test_what_happened_to_the_matter_of_a_memory_may_replace_it(before: str, after: str) -> None:
    assert _verdict(before, after) == "by_policy"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The garden gate is painted white.", "The garden gate squeaks."),
        ("The landing page uses a dark theme.", "The landing page loads in two seconds."),
        ("My bike is at the repair shop.", "My bike has a new saddle."),
        ("My bike is at the repair shop.", "My bike was stolen once, years ago."),
        ("The invoice from Kessler is unpaid.", "The invoice from Kessler is for the new roof."),
        ("The web server listens on port 80.", "The web server now has 16 threads."),
        ("Room 12 has a projector.", "The meeting moved to room 12."),
        ("The login timeout is 30 seconds.", "The upload timeout was raised by us to 60 seconds."),
        ("Rent for the shop is 1200 euros.", "Rent for my own flat has risen to 800 euros."),
        ("我的牙医是王医生。", "我姐姐的牙医现在是李医生。"),
        ("My boss is Henrik.", "My boss has three children."),
    ],
)
def test_what_holds_beside_a_memory_never_replaces_it(before: str, after: str) -> None:
    assert _verdict(before, after) != "by_policy"


def test_a_denial_in_other_words_withdraws_nothing() -> None:
    assert (
        _verdict("I am on a vegan diet.", "My diet has no animals in it.", "DELETE") != "by_policy"
    )


def test_what_is_taken_back_is_withdrawn_where_it_names_nothing_that_the_memory_lacks() -> None:
    memory = "My blood pressure is too high."
    asked = "Please forget what I said about my blood pressure."
    assert _verdict(memory, asked, "DELETE") == "by_policy"
    other = "Please forget what I said about the pressure cooker of my sister."
    assert _verdict(memory, other, "DELETE") != "by_policy"
