"""Embedding every text anew says what it takes before it begins, goes on where it was cut off, and
never compares vectors of two embedders.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import Denied, EmbeddingError, TextRefused
from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
ALICE, BOB = Actor(user="alice"), Actor(user="bob")
TEXTS = [f"Note {number} of the heron." for number in range(500)]


class Named(HashEmbedder):
    """An embedder with a name, and a fault if it is told one."""

    def __init__(self, name: str = "far:new", *, local: bool = False, after: int = 10**6) -> None:
        super().__init__(32, name=name, local=local)
        self.name = name
        self.seen: list[str] = []
        self.after = after
        """Texts after which it is away."""

    def embed(self, texts: Sequence[str]) -> Any:
        if len(self.seen) >= self.after:
            raise ConnectionError("no route to host")
        if any("poison" in text for text in texts):
            raise TextRefused
        self.seen += texts
        return super().embed(texts)


def _filled(open_tally: OpenTally) -> None:
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        tally.bind(ALICE).remember_many(TEXTS[:300])
        tally.bind(BOB).remember_many(TEXTS[300:])
        tally.bind(BOB).remember("Mine alone.", attributes={"local_only": True})


def test_it_says_what_it_takes_and_sends_nothing_before_it_is_told_to(
    open_tally: OpenTally,
) -> None:
    _filled(open_tally)
    new = Named()
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        planned = tally.bind(ROOT).operator.reembed(new)
        assert (planned.mode, planned.embedder, planned.dimension) == ("preview", "far:new", 32)
        assert (planned.texts, planned.stays) == (500, 1)
        assert (planned.tokens or 0) > 500
        assert planned.cost is not None
        assert planned.cost.amount is None
        assert not planned.is_own
        assert not new.seen


def test_a_price_that_is_known_is_said(open_tally: OpenTally, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    _filled(open_tally)
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        planned = tally.bind(ROOT).operator.reembed("openai:text-embedding-3-small")
        assert planned.cost is not None
        assert 0 < float(planned.cost.amount or 0) < 0.01
        assert tally.bind(ROOT).operator.reembed(HashEmbedder(8)).cost is None


def test_recall_goes_on_by_the_old_vectors_until_the_new_ones_are_whole(
    open_tally: OpenTally,
) -> None:
    _filled(open_tally)
    told: list[tuple[int, int]] = []
    old, new = HashEmbedder(16, name="old"), Named()
    with open_tally(embedder=old) as tally:

        def progress(finished: int, total: int) -> None:
            told.append((finished, total))
            found = tally.bind(ALICE).recall("heron", limit=3)
            assert all(hit.signals["vector"] > 0 for hit in found)

        done = tally.bind(ROOT).operator.reembed(new, mode="apply", progress=progress)
        assert (done.embedded, done.left, done.refused, done.problem) == (500, 0, 0, None)
        assert (told[0], told[-1]) == ((0, 500), (500, 500))
        assert sorted(new.seen) == sorted(TEXTS)
        again = tally.bind(ROOT).operator.reembed(new, mode="apply")
        assert (again.texts, again.embedded) == (0, 0)
    with open_tally(embedder=Named()) as tally:
        assert tally.drain().embedded == 0
        assert tally.bind(BOB).recall("heron")[0].signals["vector"] > 0


def test_a_pause_keeps_what_is_done_and_the_same_call_goes_on_there(open_tally: OpenTally) -> None:
    _filled(open_tally)
    new = Named()
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        operator = tally.bind(ROOT).operator
        paused = operator.reembed(new, mode="apply", is_pausing=lambda: len(new.seen) >= 200)
        assert (paused.embedded, paused.left) == (200, 300)
        resumed = operator.reembed(new, mode="apply")
        assert (resumed.texts, resumed.embedded, resumed.left) == (300, 300, 0)
        assert sorted(new.seen) == sorted(TEXTS)


def test_an_embedder_that_goes_away_cuts_it_off_with_its_reason(open_tally: OpenTally) -> None:
    _filled(open_tally)
    new = Named(after=200)
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        operator = tally.bind(ROOT).operator
        cut = operator.reembed(new, mode="apply")
        assert (cut.embedded, cut.left) == (200, 300)
        assert "ConnectionError" in (cut.problem or "")
        new.after = 10**6
        assert operator.reembed(new, mode="apply").left == 0


def test_a_text_that_it_refuses_is_passed_over_and_counted(open_tally: OpenTally) -> None:
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        tally.bind(ALICE).remember_many(["The heron nests.", "This is poison.", "The tide turns."])
        done = tally.bind(ROOT).operator.reembed(Named(), mode="apply")
        assert (done.embedded, done.refused, done.left) == (2, 1, 0)


def test_only_an_operator_may_and_the_consent_is_journaled(open_tally: OpenTally) -> None:
    _filled(open_tally)
    with open_tally(embedder=HashEmbedder(16, name="old")) as tally:
        with pytest.raises(Denied):
            tally.bind(ALICE).operator.reembed(Named(), mode="apply")
        tally.bind(ROOT).operator.reembed(Named(), mode="apply")
        with services_of(tally).store.database.read() as connection:
            consents = [
                (entry.actor["user"], entry.details)
                for entry in journal.entries(connection, "tally")
                if entry.event == "egress.consent"
            ]
        assert consents == [("root", {"providers": ["embedder:far:new"]})]


def test_a_changed_embedder_far_away_is_sent_nothing_until_somebody_says_so(
    open_tally: OpenTally,
) -> None:
    _filled(open_tally)
    new = Named()
    with open_tally(embedder=new) as tally:
        assert tally.drain().embedded == 0
        assert not new.seen
        root = tally.bind(ROOT)
        [finding] = [each for each in root.operator.doctor() if each.check == "vectors"]
        assert (finding.status, "tally reembed" in finding.text) == ("notice", True)
        root.operator.doctor(repair=True, reason="it says so")
        tally.drain()
        assert not new.seen
        # What is said from now on has its job, as before.
        tally.bind(ALICE).remember("A new note.")
        assert tally.drain().embedded == 1
        done = root.operator.reembed(mode="apply")
        assert (done.is_own, done.embedded, done.left) == (True, 500, 0)


def test_an_embedder_that_is_away_from_the_beginning_is_named(open_sqlite: OpenTally) -> None:
    _filled(open_sqlite)

    def away(texts: list[str]) -> Any:
        raise ConnectionError

    with (
        open_sqlite(embedder=HashEmbedder(16, name="old")) as tally,
        pytest.raises(EmbeddingError, match="ConnectionError"),
    ):
        tally.bind(ROOT).operator.reembed(away)


@pytest.mark.slow
@pytest.mark.sqlite
def test_a_process_that_is_killed_loses_no_page_that_was_stored(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        from tallystick import Actor, Tally
        from tallystick.testing import HashEmbedder

        root = Actor(user="root", role="operator")

        def progress(finished, total):
            if finished >= 400:
                os.kill(os.getpid(), 9)

        with Tally.open(sys.argv[1], background=False, embedder=HashEmbedder(16)) as tally:
            tally.bind(root).operator.reembed(
                HashEmbedder(32, name="new"), mode="apply", progress=progress
            )
        """
    )
    with Tally.open(tmp_path / "tally", background=False, embedder=HashEmbedder(16)) as tally:
        tally.bind(ALICE).remember_many([f"Note {number} of it." for number in range(700)])
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "tally")], check=False)
    assert killed.returncode == -9
    with Tally.open(tmp_path / "tally", background=False, embedder=HashEmbedder(16)) as tally:
        operator = tally.bind(ROOT).operator
        new = HashEmbedder(32, name="new")
        assert operator.reembed(new).texts == 300
        assert operator.reembed(new, mode="apply").embedded == 300
        assert all(each.status != "problem" for each in operator.doctor())


def test_settings_name_the_embedder_that_is_embedded_for(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    with open_sqlite(embedder=HashEmbedder(16)) as tally:
        tally.bind(ALICE).remember("The heron nests.")
        assert tally.bind(ROOT).operator.reembed("static", mode="apply").embedded == 1
    with open_sqlite(settings=Settings(embedder="static")) as tally:
        assert tally.drain().embedded == 0
