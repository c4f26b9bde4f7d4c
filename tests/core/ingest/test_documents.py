"""Documents: added one by one, kept whole, and read in their passages."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import InvalidInput
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick.tally import Tally
from tallystick_ingest import Ingest

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", projects=frozenset({"apollo"}))
BOB = Actor(user="bob", projects=frozenset({"apollo"}))
TEXT = "# Birds\n\n## Herons\n\n" + "The heron nests at the weir. " * 12
MORE = f"{TEXT}\n\n## Storks\n\n{'The stork sleeps on the chimney. ' * 12}"


def test_a_text_is_a_document_of_passages_that_are_memories(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        added = Ingest(ada).add_document(MORE, name="birds.md", title="Birds of ours")
        assert (added.outcome, added.chunks, added.version) == ("created", 2, 1)
        chunks = Ingest(ada).chunks(added.id)
        assert "".join(str(each.text) for each in chunks) == MORE
        assert [each.section_path for each in chunks] == [
            ("Birds", "Herons"),
            ("Birds", "Storks"),
        ]
        [hit] = ada.recall("Where does the stork sleep?", limit=1)
        assert hit.memory.id == chunks[1].memory_id
        assert hit.memory.subject == "Birds of ours › Birds › Storks"
        assert hit.memory.kind == "document"


def test_neighbours_of_a_passage_are_its_context(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        added = Ingest(ada).add_document(MORE, name="birds.md")
        first, second = Ingest(ada).chunks(added.id)
        turns = ada.memories(conversation=f"document:{added.id}")
        assert {each.id: each.position for each in turns} == {
            first.memory_id: 0,
            second.memory_id: 1,
        }


def test_of_the_same_name_it_is_a_new_version(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        first = Ingest(ada).add_document(TEXT, name="birds.md")
        assert Ingest(ada).add_document(TEXT, name="birds.md").outcome == "unchanged"
        second = Ingest(ada).add_document(MORE, name="birds.md")
        assert (second.id, second.outcome, second.version) == (first.id, "changed", 2)
        third = Ingest(ada).add_document(MORE, name="copy.md")
        assert (third.id, third.outcome) == (first.id, "duplicate")
        assert [each.id for each in Ingest(ada).documents()] == [first.id]


def test_a_file_is_read_from_this_machine_or_its_bytes(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    file = tmp_path / "birds.md"
    file.write_text(TEXT)
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        added = Ingest(ada).add_document(path=file)
        assert (added.media_type, added.record_id) == ("text/markdown", str(file))
        data = base64.b64encode(MORE.encode()).decode()
        sent = Ingest(ada).add_document(data=data, name="sent.md")
        assert (sent.outcome, sent.chunks) == ("created", 2)
        given = Ingest(ada).add_document(b"Plain bytes of a text.", name="plain.txt")
        assert given.outcome == "created"


def test_of_what_no_text_is_read_the_bytes_are_kept(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        failed = Ingest(ada).add_document(b"\x00\x01\x02", name="x.unknown")
        assert (failed.state, failed.outcome, failed.chunks) == ("failed", "failed", 0)
        assert failed.is_raw_kept
        assert failed.error is not None
        mended = Ingest(ada).add_document("Now it is a text.", name="x.unknown")
        assert (mended.id, mended.state == "failed", mended.version) == (failed.id, False, 1)
        assert mended.error is None


def test_one_thing_is_given_and_it_has_words(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ingest = Ingest(tally.bind(ADA))
        for arguments in ({}, {"content": "a", "data": "YQ=="}):
            with pytest.raises(InvalidInput, match="one of"):
                ingest.add_document(**arguments)
        with pytest.raises(InvalidInput, match="no base64"):
            ingest.add_document(data="?")
        with pytest.raises(InvalidInput, match="empty"):
            ingest.add_document("  \n")
        with pytest.raises(InvalidInput, match="cannot be read"):
            ingest.add_document(path="/nowhere/at/all")


def test_a_document_of_a_project_is_for_its_members(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        added = Ingest(tally.bind(ADA, scope="project:apollo")).add_document(TEXT, name="b.md")
        bob = tally.bind(BOB, scope="project:apollo")
        assert Ingest(bob).document(added.id).title == "Birds"
        assert len(bob.recall("heron weir")) == 1


def test_a_hidden_or_forgotten_passage_is_listed_without_its_text(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        added = Ingest(ada).add_document(MORE, name="birds.md")
        first, _ = Ingest(ada).chunks(added.id)
        ada.forget(first.memory_id, reason="mine alone")
        assert [each.text is None for each in Ingest(ada).chunks(added.id)] == [True, False]


def test_nothing_is_learned_from_a_document(open_sqlite: OpenTally) -> None:
    from tallystick.testing import ScriptedLearner

    with open_sqlite(
        settings=Settings(learning="review"), learning_model=ScriptedLearner({})
    ) as tally:
        ada = tally.bind(ADA)
        Ingest(ada).add_document(MORE, name="birds.md")
        tally.drain()
        assert [each.kind for each in ada.jobs.list(kind="learn")] == []
        assert ada.reviews.list() == []


async def test_the_same_is_awaited(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        added = await Ingest(tally.bind(ADA)).aio.add_document(TEXT, name="birds.md")
        assert added.chunks == 1


def test_what_is_no_path_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ingest = Ingest(tally.bind(ADA))
        for path in ("a\x00b", "~nobody-of-this-name/x"):
            with pytest.raises(InvalidInput, match="no path"):
                ingest.add_document(path=path)


def test_half_a_character_in_an_address_or_a_name_is_stored_as_its_escape(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        ingest = Ingest(tally.bind(ADA))
        added = ingest.add_document("The heron nests.", name="half \ud800", url="x:\udfff")
        assert added.url == ascii("x:\udfff")
        assert ingest.add_document("The heron left.", url="x:\udfff").version == 2
