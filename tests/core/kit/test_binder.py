"""Binder: the view of one call. What each runtime carries is in tests/integrations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick import Actor, Tally
from tallystick.errors import Denied
from tallystick.kit import Binder

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada")
OWNER = Actor(user="local", role="operator")


def _binder(tally: Tally) -> Binder:
    return Binder(tally, runtime="langchain", piece="TallyMiddleware")


def test_every_verb_of_a_view_that_nobody_named_is_refused_once_users_were_named(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        binder = _binder(tally)
        nobody = binder.bound(binder.call())
        memory_id = nobody.remember("The key is under the mat.").id
        assert memory_id is not None
        binder.bound(binder.call(metadata={"user_id": "ada"}))

        for refused in (
            lambda: nobody.remember("More."),
            lambda: nobody.recall("key"),
            lambda: nobody.get(memory_id),
            lambda: nobody.memories(),
            lambda: nobody.forget(memory_id, reason="no"),
            lambda: nobody.run("agent"),
            lambda: nobody.items.find(),
            lambda: nobody.threads.delete("t"),
        ):
            with pytest.raises(Denied) as error:
                refused()
            assert error.value.reason == "missing_actor"
        assert [memory.content for memory in tally.bind().memories()] == [
            "The key is under the mat."
        ]


def test_who_opens_the_tally_or_binds_a_view_acts_whatever_was_named(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        binder = _binder(tally)
        binder.bound(binder.call(metadata={"user_id": "ada"}))
        tally.bind().remember("The owner's.")
        fixed = Binder(tally.bind(ADA), runtime="langchain", piece="TallyMiddleware")
        fixed.bound().remember("Ada's.")
        assert len(tally.bind().memories()) == len(tally.bind(ADA).memories()) == 1


def test_the_agent_of_the_owner_is_no_other_user(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        binder = _binder(tally)
        binder.bound(binder.call(configurable={"actor": Actor(user="local", agent="coder")}))
        binder.bound(binder.call()).remember("Still the owner's.")
        assert len(tally.bind().memories()) == 1


@pytest.mark.postgres
def test_a_tally_without_an_owner_refuses_whoever_is_not_named(postgres_url: str) -> None:
    with Tally.open(postgres_url, schema="binder_without_owner", background=False) as tally:
        binder = _binder(tally)
        with pytest.raises(Denied, match="no owner"):
            binder.bound(binder.call())
        assert binder.bound(binder.call(metadata={"user_id": "ada"})).actor.user == "ada"
