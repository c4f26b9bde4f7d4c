"""Sizes: a tally says where its bytes are, by kind, and how they compare with what arrived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import Actor, Tally
from tallystick.errors import Denied
from tallystick.storage.text import sizes

OpenTally = Callable[..., Tally]


def test_the_bytes_of_a_tally_are_told_by_kind(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(Actor(user="local", role="operator"))
        texts = [f"Boat {number} lies at berth {number}. " * 40 for number in range(40)]
        bound.remember_many(texts)
        with bound.run("clerk") as run, run.step("model_call") as step:
            step.record("request", {"text": "word " * 5_000})

        measured = bound.operator.sizes()

        by_kind = {use.kind: use.size for use in measured.uses}
        assert measured.text == sum(map(len, texts))
        assert measured.total == sum(by_kind.values()) > measured.text
        assert [use.size for use in measured.uses] == sorted(by_kind.values(), reverse=True)
        for kind in (
            "what arrived, payloads and checkpoint values",
            "versions of memories",
            "vectors for recall",
            "journal",
            "recordings",
        ):
            assert by_kind[kind] > 0


@pytest.mark.sqlite
def test_the_files_of_a_folder_are_all_counted(open_sqlite: OpenTally, tmp_path: Path) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("Boats are heavy.")
        measured = tally.bind().operator.sizes()
        on_disk = sum(
            file.stat().st_size for file in (tmp_path / "tally").rglob("*") if file.is_file()
        )
        assert abs(measured.total - on_disk) < 64_000


@pytest.mark.sqlite
def test_a_build_of_sqlite_that_tells_no_sizes_counts_the_file(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "bytes_by_table", lambda _: None)
    with open_sqlite() as tally:
        tally.bind().remember("Boats are heavy.")
        kinds = [use.kind for use in tally.bind().operator.sizes().uses]
        assert "database" in kinds
        assert "journal" not in kinds


def test_only_an_operator_is_told(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(Denied):
        tally.bind(Actor(user="anna")).operator.sizes()
