"""A bound tally has daily verbs and parts; names of other memories are answered with ours."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, UnknownArgument, UnknownName
from tallystick.tally import BoundTally
from tallystick.tally.spellings import respell_remotely

PARTS = {
    "approvals",
    "corrections",
    "jobs",
    "operator",
    "recordings",
    "reviews",
    "spaces",
    "threads",
    "tokens",
    "working",
}
OTHER_VIEWS = {"aio", "on"}


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tally]:
    folder: Path = tmp_path_factory.mktemp("spellings")
    with Tally.open(folder / "t", background=False) as tally:
        yield tally


def test_a_bound_tally_has_24_daily_verbs_and_its_parts() -> None:
    public = {
        name: member
        for name, member in inspect.getmembers(BoundTally)
        if not name.startswith("_") and name not in OTHER_VIEWS
    }
    verbs = {name for name, member in public.items() if inspect.isroutine(member)}

    assert len(verbs) == 24
    assert public.keys() - verbs == PARTS | {"items"}
    assert len(BoundTally.__mro__) == 3, "itself, the view of memory, object"


def test_a_user_is_bound_by_name(tally: Tally) -> None:
    assert tally.user("ada") == tally.bind(Actor(user="ada"))
    apollo = tally.user("ada", "project:apollo")
    assert str(apollo.scope) == "project:apollo"


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("add", 'bound.remember("…")'),
        ("search", 'bound.recall("…")'),
        ("get_all", "bound.memories()"),
        ("list", "bound.memories()"),
        ("delete", 'bound.forget(memory_id, reason="…")'),
        ("update", 'bound.modify(memory_id, content="…", reason="…")'),
        ("approve", "bound.approvals.approve(…)"),
        ("promote", "bound.corrections.promote(…)"),
        ("erase", "bound.operator.erase(…)"),
        ("put", 'bound.remember("…")'),
        ("delete_user", 'bound.operator.erase_user("…", reason="…")'),
        ("reflect", "Learning(bound).reflect(…)"),
    ],
)
def test_a_verb_of_another_memory_is_answered_with_ours(
    tally: Tally, name: str, spelling: str
) -> None:
    bound: Any = tally.user("ada")
    with pytest.raises(UnknownName) as refused:
        getattr(bound, name)
    assert str(refused.value).endswith(f"Write {spelling}.")
    who = r"tally\.bind\(\)" if "operator" in spelling else r"(Learning\()?tally\.user"
    with pytest.raises(UnknownName, match=f"Write {who}"):
        getattr(tally, name)
    awaited = spelling.replace("bound.", "bound.aio.").replace("(bound)", "(bound).aio")
    with pytest.raises(UnknownName) as refused_too:
        getattr(bound.aio, name)
    assert str(refused_too.value).endswith(f"Write await {awaited}.")
    assert not hasattr(bound, name)
    assert not hasattr(bound.aio, name)
    assert isinstance(refused.value, InvalidInput)


def test_a_name_that_nobody_has_is_named(tally: Tally) -> None:
    owners: tuple[Any, ...] = (tally, tally.user("ada"), tally.user("ada").aio)
    for owner in owners:
        with pytest.raises(AttributeError, match="has no attribute 'heron'"):
            _ = owner.heron


@pytest.mark.parametrize(
    ("call", "spelling"),
    [
        (lambda tally: tally.user("ada").recall("x", k=5), "limit=5"),
        (lambda tally: tally.user("ada").recall("x", top_k=5), "limit=5"),
        (lambda tally: tally.user("ada").recall("x", user_id="ada"), "tally.user('ada')"),
        (lambda tally: tally.user("ada").remember("x", metadata={"a": 1}), "attributes={'a': 1}"),
        (lambda tally: asyncio.run(tally.user("ada").aio.recall("x", k=5)), "limit=5"),
        (lambda tally: tally.user("ada").recall("x", kind="note"), "kinds=['note']"),
        (lambda tally: tally.user("ada").recall("x", threshold=0.2), "min_score=0.2"),
        (lambda tally: tally.user("ada").recall("x", filter={"a": 1}), "tags=[…] or kinds=[…]"),
        (
            lambda tally: tally.user("ada").recall("x", filters={"user_id": "ada"}),
            "tally.user('ada')",
        ),
        (lambda tally: tally.user("ada").modify("x", data="y"), "content='y'"),
        (lambda tally: tally.bind(user="ada"), "tally.user('ada')"),
        (
            lambda tally: Tally.open(":memory:", learning="review"),  # type: ignore[call-arg]
            "settings=Settings(learning='review')",
        ),
    ],
)
def test_an_argument_of_another_memory_is_answered_with_ours(
    tally: Tally, call: Callable[[Any], Any], spelling: str
) -> None:
    with pytest.raises(UnknownArgument) as refused:
        call(tally)
    assert str(refused.value).endswith(f"Write {spelling}.")
    assert isinstance(refused.value, TypeError)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda ada: ada.forget("x"), 'forget(memory_id, reason="…")'),
        (lambda ada: ada.modify("x", content="y"), 'modify(memory_id, content=…, reason="…")'),
        (lambda ada: asyncio.run(ada.aio.recover("x")), 'recover(memory_id, reason="…")'),
    ],
)
def test_a_change_without_a_reason_is_answered_with_the_line_that_has_one(
    tally: Tally, call: Callable[[Any], Any], line: str
) -> None:
    with pytest.raises(TypeError, match="missing") as refused:
        call(tally.user("ada"))
    assert str(refused.value).endswith(f"Write {line}.")


def test_who_acts_is_no_argument_where_a_token_says_it() -> None:
    assert respell_remotely("recall", "k", 5) == "limit=5"
    for name, value in (("user_id", "ada"), ("filters", {"user_id": "ada"})):
        assert respell_remotely("recall", name, value) is None


def test_arguments_without_a_place_are_asked_for_by_their_names(tally: Tally) -> None:
    ada: Any = tally.user("ada")
    with pytest.raises(TypeError, match="all but query are given by their names"):
        ada.recall("x", 5)
    with pytest.raises(TypeError, match="all but memory_id are given by their names"):
        ada.modify("x", "y")
    actor: Any = Actor
    with pytest.raises(TypeError, match="such as user='ada'"):
        actor("ada")


@pytest.mark.parametrize("arguments", [(), (".tally",), ("postgresql://ada:secret@host/db",)])
def test_a_tally_that_is_made_and_not_opened_is_answered_with_the_line(arguments: Any) -> None:
    with pytest.raises(InvalidInput, match=r'write Tally\.open\("\.tally"\)') as refused:
        Tally(*arguments)
    assert "secret" not in str(refused.value)


def test_no_tally_is_made_where_no_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="`where` is empty"):
        Tally.open("")
    assert not any(tmp_path.iterdir())
