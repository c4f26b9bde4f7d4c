"""What a new member of a space would see, shown before it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import InvalidRecord, NotFound
from tallystick.records import SpaceMember

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
ANNA = Actor(user="anna", projects={"apollo"})
BEN = Actor(user="ben")


@pytest.fixture
def tally(open_sqlite: OpenTally) -> Iterator[Tally]:
    with open_sqlite() as opened:
        anna = opened.bind(ANNA, scope="project:apollo")
        anna.spaces.create("project:apollo", name="Apollo", reason="r")
        anna.remember("The heron nests in March.")
        anna.forget(anna.remember("The heron left.").id, reason="r")
        yield opened


def test_a_preview_is_what_recall_then_returns_and_changes_nothing(tally: Tally) -> None:
    anna = tally.bind(ANNA, scope="project:apollo")
    before = anna.spaces.get("project:apollo")
    preview = anna.spaces.preview_member("project:apollo", SpaceMember(principal_id="ben"))

    assert anna.spaces.get("project:apollo") == before
    assert not preview.before.decision.allowed
    assert preview.after.decision.allowed
    assert preview.gained == preview.after.visible
    assert preview.after.hidden == {"deleted": 1}
    assert "read" in preview.operations
    assert "write" not in preview.operations

    anna.spaces.update("project:apollo", members=[*before.members, preview.member], reason="r")
    ben = tally.bind(BEN, scope="project:apollo")
    assert tuple(hit.memory.id for hit in ben.recall("heron")) == preview.gained
    assert ben.spaces.preview_access().visible == preview.after.visible
    again = anna.spaces.preview_member("project:apollo", preview.member)
    assert (again.gained, again.before) == ((), again.after)


@pytest.mark.parametrize(
    ("member", "reads"),
    [
        ({"principal_id": "ben", "role": "writer"}, True),
        ({"principal_type": "agent", "principal_id": "coder"}, True),
        ({"principal_type": "project", "principal_id": "hermes"}, True),
    ],
)
def test_groups_and_agents_are_looked_at_as_members(
    tally: Tally, member: dict[str, Any], reads: bool
) -> None:
    preview = tally.bind(ANNA).spaces.preview_member("project:apollo", member)

    assert preview.after.decision.allowed is reads
    assert len(preview.gained) == 1


def test_a_closed_space_stays_closed_and_a_new_one_is_opened_in_thought(tally: Tally) -> None:
    root, anna = tally.bind(ROOT), tally.bind(ANNA)
    opened = root.spaces.preview_member("team:birds", {"principal_id": "ben"})
    anna.spaces.update("project:apollo", state="closed", reason="r")
    closed = anna.spaces.preview_member("project:apollo", {"principal_id": "ben"})

    assert (opened.after.decision.allowed, opened.gained) == (True, ())
    assert root.spaces.list()[0].scope.key == "apollo"
    assert (closed.after.decision.allowed, closed.gained) == (False, ())
    assert len(closed.after.denied) == 1
    with pytest.raises(InvalidRecord):
        anna.spaces.preview_member("private:anna", {"principal_id": "ben"})


def test_nobody_learns_by_it_what_he_may_not_inspect(tally: Tally) -> None:
    with pytest.raises(NotFound) as there:
        tally.bind(BEN).spaces.preview_member("project:apollo", {"principal_id": "ben"})
    with pytest.raises(NotFound) as absent:
        tally.bind(BEN).spaces.preview_member("project:nothing", {"principal_id": "ben"})

    assert str(there.value).replace("apollo", "nothing") == str(absent.value)
