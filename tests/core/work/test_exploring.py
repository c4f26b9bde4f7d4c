"""Exploring is narrowed by kind, status and link, and everything about a name is a pack."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import Actor, NewMemory
from tallystick.settings import Settings
from tallystick.tally import Tally

ALICE = Actor(user="alice")


def test_exploring_is_narrowed_by_kind_status_and_link(open_tally: Callable[..., Tally]) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        rule = mine.remember("A rule.", kind="rule").id
        first = mine.remember("First.", kind="task", attributes={"status": "doing"}).id
        second = mine.remember("Second.", kind="task", depends_on=[first], related_to=[rule]).id

        def ids(around: str, **filters: object) -> set[str]:
            explored = mine.explore(around, **filters)  # type: ignore[arg-type]
            return {each.id for each in explored.memories}

        here = str(mine.scope)
        assert ids(here, kinds=["rule"]) == {rule}
        assert ids(here, status="doing") == {first}
        assert ids(here, links=["DEPENDS_ON"]) == {second}
        assert ids(second, links=["DEPENDS_ON"]) == {second, first}
        assert ids(second, kinds=["rule"]) == {second, rule}
        assert ids(second, status="doing") == {second, first}
        for around in (here, second):
            with pytest.raises(InvalidInput, match="Did you mean 'doing'"):
                mine.explore(around, status="donig")
        with pytest.raises(InvalidInput, match="Filters"):
            mine.explore(here, mode="dependencies", kinds=["task"])


def test_everything_about_a_name_is_a_pack_with_sources(open_sqlite: Callable[..., Tally]) -> None:
    with open_sqlite(settings=Settings(graph=True)) as tally:
        mine = tally.bind(ALICE)
        mine.remember_many(
            [
                NewMemory(content="The harbour of Delft is closed.", entities=("Delft",)),
                NewMemory(content="Delft has blue tiles.", entities=("Delft",)),
                NewMemory(content="Lunch is at noon."),
            ]
        )
        tally.drain()

        packed = mine.pack("Delft", about=True)

        assert [item.text for item in packed.items] == [
            "Delft has blue tiles.",
            "The harbour of Delft is closed.",
        ]
        assert all(item.chosen_as == "about" and item.source_ids for item in packed.items)
        with pytest.raises(NotFound):
            mine.pack("Nowhere", about=True)
