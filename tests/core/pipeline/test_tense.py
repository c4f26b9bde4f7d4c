"""What a sentence tells happened, by its tense."""

from __future__ import annotations

import pytest

from tallystick.pipeline.tense import happenings, tells_a_change


@pytest.mark.parametrize(
    "text",
    [
        "We painted the garden gate blue over the weekend.",
        "My sister broke off the engagement with Rob.",
        "I've become a coffee drinker.",
        "The parcel was delivered.",
        "Biscuit died last week.",
        "They put our office on the fifth floor.",
        "Meine Tochter hat die Geige gegen ein Cello eingetauscht.",
        "Der Notar hat den Termin auf den 18. März gelegt.",
        "Ich bin mit dem Vertrag zu O2 gegangen.",
        "On a rapatrié le serveur de test dans nos locaux.",
        "Vendí el Seat y compré una bicicleta.",
        "A mi padre le dieron el alta ayer.",
        "La palestra sotto casa ha chiuso.",
        "Os vizinhos venderam a casa.",
        "Mijn zoon is gestopt met voetbal.",
        "会议室搬到五楼了。",
    ],
)
def test_a_sentence_in_the_perfect_or_the_past_tells_what_happened(text: str) -> None:
    assert tells_a_change(text)


@pytest.mark.parametrize(
    "text",
    [
        "The garden gate is painted white.",
        "The landing page loads in two seconds.",
        "The API limit for paid users is 500 per minute.",
        "Passwords are now stored in Vault.",
        "My bike has a new saddle.",
        "We need red paint.",
        "My doctor told me to sleep more.",
        "I watched Brentford play on Saturday.",
        "Unser Büro hat zwei Besprechungsräume.",
        "Das Tor ist weiß gestrichen.",
        "Le serveur de test tourne sous Debian.",
        "La reunión semanal dura una hora.",
        "O meu cão tem cinco anos.",
        "Mijn zoon heeft rood haar.",
        "我们的数据库有三个副本。",
    ],
)
def test_how_something_is_and_an_act_that_changes_nothing_tell_no_change(text: str) -> None:
    assert not tells_a_change(text)


@pytest.mark.parametrize(
    "text",
    [
        "My bike was stolen once, years ago.",
        "My knee was operated on in 2019.",
        "Middlemarch was written by George Eliot.",
        "Als Kind hat er in Bonn gewohnt.",
    ],
)
def test_what_happened_long_ago_and_who_made_something_change_nothing_now(text: str) -> None:
    assert not tells_a_change(text)


def test_the_verbs_are_told_by_their_place() -> None:
    text = "I upgraded the laptop and sold the tablet."
    assert [text[start:end] for start, end in happenings(text)] == ["upgraded", "sold"]
