"""Abuse: what an attacker or a broken agent does is alerted within one evaluation, and an operator
stops it before the next action.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import Denied
from tallystick.records import Actor, AlertLimits
from tallystick.settings import Settings
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick_steward import Steward

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="olga", role="operator")
ADA = Actor(user="ada")
CRAWLER = Actor(user="ada", agent="crawler")


def _delete(tally: Tally, ids: list[str]) -> None:
    for memory_id in ids[:25]:
        tally.bind(CRAWLER).forget(memory_id, reason="a sweep")


def _read(tally: Tally, ids: list[str]) -> None:
    for _ in range(4):
        tally.bind(CRAWLER).memories(limit=60)
    services_of(tally).gate.flush()


def _forge(tally: Tally, ids: list[str]) -> None:
    items = [{"content": f"Bob said {number}.", "speaker": "bob"} for number in range(12)]
    tally.bind(CRAWLER).remember_many(items)


@pytest.mark.parametrize(
    ("abuse", "alert"),
    [(_delete, "delete_spike"), (_read, "read_spike"), (_forge, "forged_speakers")],
)
def test_an_abuse_is_alerted_within_one_evaluation_and_names_its_caller(
    open_sqlite: OpenTally, abuse: Callable[[Tally, list[str]], None], alert: str
) -> None:
    with open_sqlite(settings=Settings(alerts=AlertLimits(reads=200))) as tally:
        tally.bind(Actor(user="bob")).remember("Bob is here.")
        texts = [f"Fact {number} of many." for number in range(60)]
        ids = [each.id for each in tally.bind(ADA).remember_many(texts)]
        abuse(tally, ids)
        [raised] = Steward(tally.bind(OPERATOR)).alerts()
        assert raised.name == alert
        assert set(raised.facts["callers"]) == {"ada/crawler"}  # type: ignore[arg-type]


def test_a_freeze_acts_before_the_next_action(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        texts = [f"Fact {number} of many." for number in range(30)]
        ids = [each.id for each in tally.bind(ADA).remember_many(texts)]
        crawler = tally.bind(CRAWLER)
        for memory_id in ids[:22]:
            crawler.forget(memory_id, reason="a sweep")
        [alert] = Steward(tally.bind(OPERATOR)).alerts()
        assert alert.name == "delete_spike"
        tally.bind(OPERATOR).operator.freeze(reason="a sweep is under way")
        with pytest.raises(Denied) as refused:
            crawler.forget(ids[22], reason="a sweep")
        assert refused.value.reason == "mutations_frozen"
