"""Imports: everything that a source has, once, private, in step with it, and removable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.core.ingest.folder_source import Folder

from tallystick.errors import Denied, InvalidInput, NotFound, NotOfFormat, StateConflict
from tallystick.records import Actor, Import, ImportCounters, JsonObject
from tallystick.settings import Settings
from tallystick.storage.engine.dialects import database_clock
from tallystick.storage.rows import source_rows
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_ingest import (
    Checkpoint,
    Corpus,
    Ingest,
    Known,
    Removed,
    Yielded,
)

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", projects=frozenset({"apollo"}))
BOB = Actor(user="bob", projects=frozenset({"apollo"}))
ROOT = Actor(user="root", role="operator")
SOURCES = {"folder": "tests.core.ingest.folder_source:Folder"}


def settings(**more: Any) -> Settings:
    return Settings(sources=SOURCES, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with 25 files on birds."""
    folder = tmp_path / "birds"
    folder.mkdir()
    for number in range(25):
        write(folder, number, f"The heron number {number} nests at pond {7 * number}.")
    return folder


def write(folder: Path, number: int, text: str) -> Path:
    file = folder / f"{number:02}.md"
    file.write_text(f"# Bird {number}\n\n## Where it nests\n\n{text}\n")
    return file


def imported(tally: Tally, bound: BoundTally, folder: Path, adapter: str = "files") -> Import:
    started = Ingest(bound).start_import(folder, adapter=adapter)
    tally.drain()
    return Ingest(bound).import_status(started.id)


def files_with(tally: Tally, text: str) -> list[Path]:
    """The files of a tally's folder that hold a text; none of a database elsewhere."""
    folder = services_of(tally).store.location.folder
    if folder is None:
        return []
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each for each in files if text.encode() in each.read_bytes()]


def texts(bound: BoundTally) -> list[str]:
    return sorted(each.content for each in bound.memories(limit=1_000))


def test_every_file_is_recalled_with_its_title_and_place(
    open_tally: OpenTally, folder: Path
) -> None:
    with open_tally(settings=settings()) as tally:
        ada = tally.bind(ADA)
        done = imported(tally, ada, folder)

        assert (done.state, done.counters) == (
            "completed",
            ImportCounters(seen=25, stored=25, chunks=25),
        )
        [hit] = ada.recall("Where does heron number 17 nest?", limit=1)
        assert "pond 119" in hit.content
        assert hit.memory.subject == "Bird 17 › Where it nests"
        assert hit.memory.attributes["section_path"] == ["Where it nests"]
        assert hit.sources[0].source_type == "file"
        pack = ada.pack("Where does heron number 17 nest?", budget_tokens=300)
        assert "Bird 17 › Where it nests" in pack.text


def test_words_are_found_before_there_is_any_vector(open_sqlite: OpenTally, folder: Path) -> None:
    with open_sqlite(settings=settings(), background=False) as tally:
        ada = tally.bind(ADA)
        started = Ingest(ada).start_import(folder, adapter="folder")
        assert services_of(tally).background.run_one(str(started.job_id), "import")

        status = Ingest(ada).import_status(started.id)
        assert (status.state, status.waiting) == ("completed", 25)
        [hit] = ada.recall("heron number 17 pond", limit=1)
        assert "pond 119" in hit.content
        [first, *_] = Ingest(ada).import_records(started.id)
        assert first.state == "embedding_pending"
        tally.drain()
        assert Ingest(ada).import_status(started.id).waiting == 0
        assert {each.state for each in Ingest(ada).import_records(started.id)} == {"indexed"}


def test_imported_again_nothing_is_added(open_tally: OpenTally, folder: Path) -> None:
    with open_tally(settings=settings()) as tally:
        ada = tally.bind(ADA)
        imported(tally, ada, folder)
        before = ada.memories(limit=1_000)
        again = imported(tally, ada, folder)
        assert again.counters == ImportCounters(seen=25, unchanged=25)
        anew = Ingest(ada).resync(again.id)
        tally.drain()
        assert Ingest(ada).import_status(anew.id).counters == ImportCounters(seen=25, unchanged=25)
        assert ada.memories(limit=1_000) == before


def test_a_changed_file_is_a_new_version_of_the_same_memory(
    open_tally: OpenTally, folder: Path
) -> None:
    with open_tally(settings=settings()) as tally:
        ada = tally.bind(ADA)
        imported(tally, ada, folder)
        [before] = ada.recall("heron number 3 pond", limit=1)
        write(folder, 3, "The heron number 3 moved to the weir.")
        changed = imported(tally, ada, folder)

        assert changed.counters == ImportCounters(seen=25, stored=1, unchanged=24, chunks=1)
        after = ada.get(before.memory.id)
        assert (after.version, "weir" in after.content) == (2, True)
        assert [each.event for each in ada.history(after.id)] == ["ADD", "UPDATE"]
        assert not any("pond 21." in text for text in texts(ada))
        sources = [ada.source(each.source_id) for each in after.sources]
        assert {each.source_type for each in sources} == {"file"}


def test_what_a_person_corrected_or_forgot_stays_so(open_sqlite: OpenTally, folder: Path) -> None:
    with open_sqlite(settings=settings()) as tally:
        ada = tally.bind(ADA)
        imported(tally, ada, folder)
        [one], [two] = (ada.recall(f"heron number {number} pond", limit=1) for number in (3, 4))
        ada.forget(one.memory.id, reason="private")
        ada.modify(two.memory.id, content="Heron 4 is gone.", reason="seen", manual_override=True)
        for number in (3, 4):
            write(folder, number, f"The heron number {number} moved to the weir.")
        imported(tally, ada, folder)
        assert ada.get(two.memory.id).content == "Heron 4 is gone."
        assert not any("number 3 " in text for text in texts(ada))


def test_a_file_that_is_longer_or_shorter_keeps_its_passages_in_order(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    sections = [f"## Part {number}\n\n{f'word{number} ' * 60}\n\n" for number in range(4)]
    with open_sqlite(settings=settings()) as tally:
        ada = tally.bind(ADA)
        for count in (3, 1, 4, 2, 4):
            (folder / "a.md").write_text("".join(sections[:count]))
            imported(tally, ada, folder)
            [document] = Ingest(ada).documents()
            chunks = Ingest(ada).chunks(document.id)
            assert [each.section_path for each in chunks] == [
                (f"Part {number}",) for number in range(count)
            ]
            assert document.chunks == count == len(texts(ada))
        assert document.version == 5


def test_the_same_content_under_two_names_is_one_document_until_one_changes(
    open_tally: OpenTally, folder: Path
) -> None:
    with open_tally(settings=settings()) as tally:
        ada = tally.bind(ADA)
        (folder / "copy.md").write_bytes((folder / "03.md").read_bytes())
        first = imported(tally, ada, folder)
        assert (first.counters.stored, first.counters.duplicate) == (25, 1)
        anew = Ingest(ada).resync(first.id)
        tally.drain()
        counters = Ingest(ada).import_status(anew.id).counters
        assert counters == ImportCounters(seen=26, unchanged=26)
        write(folder, 3, "The heron number 3 moved to the weir.")
        imported(tally, ada, folder)
        about = [text for text in texts(ada) if "number 3 " in text]
        assert len(about) == 2
        assert sum("pond 21" in text for text in about) == 1


def test_what_vanished_goes_by_a_preview_alone(open_tally: OpenTally, folder: Path) -> None:
    with open_tally(settings=settings()) as tally:
        ada = tally.bind(ADA)
        imported(tally, ada, folder)
        (folder / "07.md").unlink()
        synced = imported(tally, ada, folder)
        assert (synced.vanished, len(texts(ada))) == (1, 25)

        ingest = Ingest(ada)
        preview = ingest.remove_vanished(synced.id, reason="it is gone")
        assert [(each.record_id, each.chunks) for each in preview.records] == [("07.md", 1)]
        with pytest.raises(Denied, match="confirm_token_required"):
            ingest.remove_vanished(synced.id, reason="it is gone", mode="apply")
        (folder / "08.md").unlink()
        later = imported(tally, ada, folder)
        with pytest.raises(StateConflict):
            ingest.remove_vanished(
                later.id, reason="x", mode="apply", confirm_token=preview.confirm_token
            )
        preview = ingest.remove_vanished(later.id, reason="x")
        removed = ingest.remove_vanished(
            later.id, reason="x", mode="apply", confirm_token=preview.confirm_token
        )
        assert (removed.forgotten, len(texts(ada))) == (2, 23)
        write(folder, 7, "The heron is back.")
        assert imported(tally, ada, folder).counters.stored == 1
        assert len(texts(ada)) == 24


def test_what_cannot_be_read_is_skipped_with_its_reason(
    open_sqlite: OpenTally, folder: Path
) -> None:
    (folder / "empty.md").write_text("")
    (folder / "latin.md").write_bytes(b"caf\xe9 " * 20)
    (folder / "picture.bin").write_bytes(b"\x00")
    with open_sqlite(settings=settings()) as tally:
        ada = tally.bind(ADA)
        done = imported(tally, ada, folder)
        assert (done.state, done.counters.stored, done.counters.skipped) == (
            "completed",
            26,
            {"empty": 1, "unsupported_type": 1},
        )
        skipped = Ingest(ada).import_records(done.id, state=["skipped"])
        assert [(each.record_id, each.reason) for each in skipped] == [
            ("empty.md", "empty"),
            ("picture.bin", "unsupported_type"),
        ]
        [latin] = [each for each in Ingest(ada).documents() if each.title == "latin.md"]
        assert latin.transforms == ("decoded/latin-1",)
        assert any(text.startswith("café") for text in texts(ada))


def test_a_secret_is_in_no_passage_and_in_nothing_that_arrived(
    open_sqlite: OpenTally, folder: Path
) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    write(folder, 1, f"The door opens with {secret}.")
    (folder / "01.png").write_bytes(b"picture")
    with open_sqlite(settings=settings(), owner=ROOT) as tally:
        ada = tally.bind(ADA)
        imported(tally, ada, folder, "folder")
        assert not any(secret in text for text in texts(ada))
        [document] = [each for each in Ingest(ada).documents() if each.title == "Bird 1"]
        assert document.transforms == ("redacted/1",)
        [attachment] = Ingest(ada).document(document.id).attachments
        assert (attachment.name, attachment.size, attachment.is_kept) == ("01.png", 7, True)
        assert files_with(tally, secret) == []


class Feed(Folder):
    """The same folder as a feed of changes: from a checkpoint on it tells what came and went."""

    name = "feed"

    def corpus(self, target: str) -> Corpus:
        return replace(super().corpus(target), lists_all=False)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        lines = Path(target, "changes").read_text().splitlines()
        for number, line in enumerate(lines[int(checkpoint or 0) :], start=int(checkpoint or 0)):
            if line.startswith("-"):
                yield Removed(line[1:])
            else:
                yield from self.replay(target, line, None)
            yield Checkpoint(str(number + 1))


def test_an_attachment_that_changed_makes_a_new_version_of_its_document(
    open_tally: OpenTally, folder: Path
) -> None:
    picture = folder / "01.png"
    picture.write_bytes(b"picture")
    with open_tally(background=False, settings=settings()) as tally:
        bound = tally.bind(ADA)
        imported(tally, bound, folder, "folder")
        [before] = [each for each in Ingest(bound).documents() if each.record_id == "01.md"]
        picture.write_bytes(b"another picture")
        write(folder, 1, "The heron number 1 nests at pond 7.")  # a version with the same text

        preview = Ingest(bound).preview_import(folder, adapter="folder")
        again = imported(tally, bound, folder, "folder")
        after = Ingest(bound).document(before.id)

    assert (preview.changed, preview.unchanged) == (1, 24)
    assert (again.counters.stored, again.counters.unchanged) == (1, 24)
    assert (after.version, [each.size for each in after.attachments]) == (2, [15])


def test_a_feed_of_changes_goes_on_where_it_ended_and_says_what_went(
    open_tally: OpenTally, folder: Path
) -> None:
    changes = folder / "changes"
    changes.write_text("01.md\n02.md\n03.md\n")
    sources = {"feed": f"{__name__}:Feed"}
    with open_tally(settings=Settings(sources=sources)) as tally:
        ada = tally.bind(ADA)
        for more, seen, vanished in (("", 3, 0), ("04.md\n-02.md\n", 2, 1), ("", 0, 1)):
            changes.write_text(changes.read_text() + more)
            started = Ingest(ada).start_import(folder, adapter="feed")
            tally.drain()
            status = Ingest(ada).import_status(started.id)
            assert (status.counters.seen, status.vanished) == (seen, vanished)
        preview = Ingest(ada).remove_vanished(started.id, reason="gone")
        assert [each.record_id for each in preview.records] == ["02.md"]
        assert len(texts(ada)) == 4


# States


def test_an_import_pauses_resumes_and_ends_when_it_is_told(
    open_tally: OpenTally, folder: Path
) -> None:
    with open_tally(settings=settings(), background=False) as tally:
        ada = tally.bind(ADA)
        ingest = Ingest(ada)
        started = ingest.start_import(folder, adapter="folder")
        assert started.state == "pending"
        assert ingest.pause(started.id).state == "paused"
        tally.drain()
        assert (ingest.import_status(started.id).state, texts(ada)) == ("paused", [])
        assert ingest.resume(started.id).state == "pending"
        tally.drain()
        assert ingest.import_status(started.id).state == "completed"
        with pytest.raises(StateConflict):
            ingest.pause(started.id)
        again = ingest.start_import(folder, adapter="folder")
        assert ingest.cancel(again.id).state == "cancelled"
        tally.drain()
        assert ingest.import_status(again.id).state == "cancelled"
        with pytest.raises(StateConflict):
            ingest.resume(again.id)
        assert [each.id for each in ingest.imports()] == [again.id, started.id]


def test_a_source_that_wants_a_credential_pauses_and_goes_on_from_its_checkpoint(
    open_sqlite: OpenTally, folder: Path
) -> None:
    (folder / "21.locked").write_text("")
    with open_sqlite(settings=settings()) as tally:
        ada = tally.bind(ADA)
        paused = imported(tally, ada, folder, "folder")
        assert (paused.state, paused.error_code) == ("paused", "authorization_needed")
        assert paused.counters.seen == 20
        [finding] = [
            each for each in tally.bind(ROOT).operator.doctor() if each.check.startswith("sources")
        ]
        assert finding.check == "sources: folder"
        assert finding.text.endswith("is paused: authorization_needed")
        (folder / "21.locked").unlink()
        Ingest(ada).resume(paused.id)
        tally.drain()
        done = Ingest(ada).import_status(paused.id)
        assert (done.state, done.counters.seen, done.error_code) == ("completed", 25, None)


def test_a_source_that_asks_to_wait_is_asked_after_that(
    open_sqlite: OpenTally, folder: Path
) -> None:
    busy = folder / "15.busy"
    busy.write_text("")
    with open_sqlite(settings=settings(), background=False) as tally:
        ada = tally.bind(ADA)
        started = Ingest(ada).start_import(folder, adapter="folder")
        services_of(tally).background.run_one(str(started.job_id), "import")
        waits = Ingest(ada).import_status(started.id)
        assert (waits.state, waits.error_code) == ("running", "source_rate_limited")
        assert waits.retry_at is not None
        assert 20_000_000 < waits.retry_at - jobs_clock(tally) <= 30_000_000
        busy.unlink()
        tally.drain()
        assert Ingest(ada).import_status(started.id).counters.seen == 25


def jobs_clock(tally: Tally) -> int:
    with services_of(tally).store.database.read() as connection:
        return database_clock(connection)


def test_a_source_that_fails_is_tried_five_times_from_its_last_checkpoint(
    open_sqlite: OpenTally, folder: Path
) -> None:
    broken = folder / "15.broken"
    broken.write_text("")
    with open_sqlite(settings=settings(), background=False) as tally:
        ada = tally.bind(ADA)
        started = Ingest(ada).start_import(folder, adapter="folder")
        for _ in range(5):
            assert Ingest(ada).import_status(started.id).state != "failed"
            tally.drain()
        failed = Ingest(ada).import_status(started.id)
        assert (failed.state, failed.error_code, failed.counters.seen) == ("failed", "OSError", 10)
        broken.unlink()
        Ingest(ada).resume(started.id)
        tally.drain()
        assert Ingest(ada).import_status(started.id).counters.seen == 25


def test_the_right_to_write_is_asked_again_for_each_batch(
    open_sqlite: OpenTally, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada loses hers after the first batch: nothing more is stored."""
    with open_sqlite(settings=settings(), background=False) as tally:
        ada, services = tally.bind(ADA), services_of(tally)
        started = Ingest(ada).start_import(folder, adapter="folder")
        decide = services.gate.decide

        def without_right(connection: Any, actor: Actor, operation: Any, scope: Any) -> Any:
            decision = decide(connection, actor, operation, scope)
            row = source_rows.find_import(connection, started.id)
            assert row is not None
            is_later = json.loads(row["counters"]).get("seen", 0) >= 10
            if operation == "write" and actor.user == "ada" and is_later:
                return decision.model_copy(
                    update={"allowed": False, "reason": "missing_permission"}
                )
            return decision

        monkeypatch.setattr(services.gate, "decide", without_right)
        tally.drain()
        monkeypatch.undo()
        status = Ingest(ada).import_status(started.id)
        assert (status.state, status.error_code) == ("failed", "job_policy_context_stale")
        assert (status.counters.seen, len(texts(ada))) == (10, 10)


# Who sees it, and what is left of it


def test_an_import_goes_into_a_private_scope_alone(open_sqlite: OpenTally, folder: Path) -> None:
    with open_sqlite(settings=settings()) as tally:
        with pytest.raises(Denied, match="promote or share from there"):
            Ingest(tally.bind(ADA, scope="project:apollo")).start_import(folder, adapter="folder")
        imported(tally, tally.bind(ADA), folder)
        for other in (
            tally.bind(BOB),
            tally.bind(ADA, scope="project:apollo"),
            tally.bind(BOB, scope="project:apollo"),
        ):
            assert list(other.recall("heron number 17 pond")) == []


def test_nobody_else_sees_an_import_or_a_document(open_tally: OpenTally, folder: Path) -> None:
    with open_tally(settings=settings()) as tally:
        ada, bob = Ingest(tally.bind(ADA)), Ingest(tally.bind(BOB))
        done = imported(tally, tally.bind(ADA), folder)
        document = ada.documents()[0]
        assert (bob.imports(), bob.documents()) == ([], [])
        for call in (
            lambda: bob.import_status(done.id),
            lambda: bob.import_records(done.id),
            lambda: bob.pause(done.id),
            lambda: bob.resume(done.id),
            lambda: bob.cancel(done.id),
            lambda: bob.resync(done.id),
            lambda: bob.replay(done.id, "03.md"),
            lambda: bob.remove_vanished(done.id, reason="x"),
            lambda: bob.document(document.id),
            lambda: bob.chunks(document.id),
        ):
            with pytest.raises(NotFound):
                call()


def test_a_caller_from_outside_has_only_folders_of_the_setting_read(
    open_sqlite: OpenTally, folder: Path, tmp_path: Path
) -> None:
    with open_sqlite(
        settings=settings(source_roots=(folder,), served_sources=("folder",))
    ) as tally:
        outside = tmp_path / "other"
        outside.mkdir()
        (folder / "link").symlink_to(outside)
        (loop := tmp_path / "loop").symlink_to(loop)
        for actor in (ADA.on("http"), ADA.on("mcp"), ADA.replace(agent="coder")):
            ingest = Ingest(tally.bind(actor))
            assert ingest.start_import(folder, adapter="folder").state != "failed"
            targets = (outside, folder / "link", folder / ".." / "other", f"file://{outside}")
            for target in (*targets, loop, "~nobody-of-that-name", tmp_path / "absent"):
                with pytest.raises(InvalidInput, match="source_roots"):
                    ingest.start_import(target, adapter="folder")
            with pytest.raises(InvalidInput, match="source_roots"):
                ingest.add_document(path=tmp_path / "x.md")
        Ingest(tally.bind(ADA)).start_import(outside, adapter="folder")


def test_a_folder_that_became_a_link_before_its_job_is_not_followed(
    open_sqlite: OpenTally, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "secret.md").write_text("The password of the mill is heron.")
    within = folder / "notes"
    within.mkdir()
    with open_sqlite(
        settings=settings(source_roots=(folder,), served_sources=("folder",))
    ) as tally:
        served = tally.bind(ADA.replace(surface="http"))
        begun = Ingest(served).start_import(str(within), adapter="folder")
        within.rmdir()
        within.symlink_to(outside)
        tally.drain()
        assert Ingest(served).import_status(begun.id).state == "failed"
        assert not served.recall("What is the password of the mill?")


def test_a_caller_from_outside_uses_no_credential_of_the_process(
    open_sqlite: OpenTally, folder: Path
) -> None:
    with open_sqlite(settings=settings(source_roots=(folder,))) as tally:
        started = Ingest(tally.bind(ADA)).start_import(folder, adapter="folder")
        ingest = Ingest(tally.bind(ADA.on("http")))
        for call in (
            lambda: ingest.start_import(folder, adapter="folder"),
            lambda: ingest.resync(started.id),
            lambda: ingest.replay(started.id, "03.md"),
        ):
            with pytest.raises(InvalidInput, match="served_sources"):
                call()


def test_a_target_of_another_kind_and_an_unknown_adapter_are_refused(
    open_sqlite: OpenTally, folder: Path
) -> None:
    with open_sqlite(settings=settings()) as tally:
        ingest = Ingest(tally.bind(ADA))
        with pytest.raises(NotOfFormat):
            ingest.start_import(folder / "03.md", adapter="mailbox")
        with pytest.raises(InvalidInput, match="folder"):
            ingest.start_import(folder, adapter="wiki")
        assert ingest.imports() == []


def test_an_erased_user_leaves_no_byte_of_what_was_imported(
    open_tally: OpenTally, folder: Path
) -> None:
    write(folder, 1, "The pelican opens vault 7341 at noon every day.")
    (folder / "02.png").write_bytes(b"picture of a pelican 7341")
    with open_tally(settings=settings(), owner=ROOT) as tally:
        imported(tally, tally.bind(ADA), folder)
        operator = tally.bind(ROOT).operator
        preview = operator.erase_user("ada", reason="left")
        assert preview.counts["documents"] == 25
        erased = operator.erase_user(
            "ada", reason="left", mode="apply", confirm_token=preview.confirm_token
        )
        assert erased.proof is not None
        assert (erased.proof.holds, erased.proof.problems) == (True, ())
        assert files_with(tally, "pelican") == []


@pytest.mark.parametrize("shared", ["destroy", "hand_over"])
def test_a_document_in_a_project_is_destroyed_or_handed_over_with_its_user(
    open_sqlite: OpenTally, shared: Literal["destroy", "hand_over"]
) -> None:
    with open_sqlite(owner=ROOT) as tally:
        apollo = Ingest(tally.bind(ADA, scope="project:apollo"))
        apollo.add_document("The pelican opens vault 7341 at noon.", name="vault.md")
        operator = tally.bind(ROOT).operator
        preview = operator.erase_user("ada", reason="left", shared=shared)
        erased = operator.erase_user(
            "ada",
            reason="left",
            shared=shared,
            mode="apply",
            confirm_token=preview.confirm_token,
        )
        assert erased.proof is not None
        assert (erased.proof.holds, erased.proof.problems) == (True, ())
        left = Ingest(tally.bind(BOB, scope="project:apollo")).documents()
        assert [each.created_by for each in left] == (
            [] if shared == "destroy" else ["project:apollo"]
        )
        assert shared == "hand_over" or files_with(tally, "pelican") == []


def test_erasing_a_passage_destroys_what_arrived_with_it(
    open_tally: OpenTally, folder: Path
) -> None:
    write(folder, 1, "The pelican opens vault 7341 at noon every day.")
    with open_tally(settings=settings(), owner=ROOT) as tally:
        ada = tally.bind(ADA)
        imported(tally, ada, folder)
        [hit] = ada.recall("pelican vault", limit=1)
        operator = tally.bind(ROOT).operator
        preview = operator.erase([hit.memory.id], reason="asked")
        erased = operator.erase(
            [hit.memory.id], reason="asked", mode="apply", confirm_token=preview.confirm_token
        )
        assert [(proof.holds, proof.problems) for proof in erased.proofs] == [(True, ())]
        # The record is known, so that the next import does not bring it back.
        assert imported(tally, ada, folder).counters == ImportCounters(seen=25, unchanged=25)


def test_an_export_takes_documents_along(
    open_sqlite: OpenTally, folder: Path, tmp_path: Path
) -> None:
    owner = ADA.replace(role="operator")
    with open_sqlite(settings=settings(), owner=owner) as tally:
        ada = tally.bind(owner)
        imported(tally, ada, folder)
        ada.operator.export(tmp_path / "out", scopes=["private:ada"], mode="apply")
        expected = [each.dump() for each in Ingest(ada).documents()]
    with Tally.open(tmp_path / "new", owner=owner, settings=settings(), background=False) as tally:
        ada = tally.bind(owner)
        ada.operator.import_from(tmp_path / "out")
        assert [each.dump() for each in Ingest(ada).documents()] == expected
        assert imported(tally, ada, folder).counters == ImportCounters(seen=25, unchanged=25)


def test_one_record_is_read_again_and_twice_changes_nothing(
    open_sqlite: OpenTally, folder: Path
) -> None:
    with open_sqlite(settings=settings()) as tally:
        ada = tally.bind(ADA)
        done = imported(tally, ada, folder, "folder")
        write(folder, 3, "The heron number 3 moved to the weir.")
        first = Ingest(ada).replay(done.id, "03.md")
        before = ada.memories(limit=1_000)
        assert sum("weir" in each.content for each in before) == 1
        second = Ingest(ada).replay(done.id, "03.md")
        assert second.document_id == first.document_id
        assert ada.memories(limit=1_000) == before


# Processes that die

_CHILD = """
import os, signal, sys
from pathlib import Path
from tallystick import Actor, Tally
from tallystick.jobs.runner import Work
from tallystick.settings import Settings
from tallystick_ingest import Ingest

place, folder, import_id, commits = sys.argv[1:]
commit, done = Work.commit, 0

def dying(self, unit, **more):
    global done
    is_import = self._handler.kind == "import"
    if is_import and done == int(commits):
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, unit, **more)
    done += is_import

Work.commit = dying
sources = {"folder": "tests.core.ingest.folder_source:Folder"}
with Tally.open(place, background=False, settings=Settings(sources=sources)) as tally:
    ingest = Ingest(tally.bind(Actor(user="ada")))
    ingest.resume(import_id)
    tally.drain()
"""


@pytest.mark.sqlite
def test_an_import_that_is_killed_goes_on_and_nothing_is_lost_or_twice(
    tmp_path: Path, folder: Path
) -> None:
    """Killed again and again, after one batch more or in the middle of one."""
    ada = Actor(user="ada")
    place = tmp_path / "tally"
    with Tally.open(place, background=False, settings=settings()) as tally:
        started = Ingest(tally.bind(ada)).start_import(folder, adapter="folder")
    for commits in (1, 0, 1, 0):
        child = [sys.executable, "-c", _CHILD, str(place), str(folder), started.id, str(commits)]
        killed = subprocess.run(child, capture_output=True, check=False)
        assert killed.returncode == -9, killed.stderr.decode()
    with Tally.open(place, background=False, settings=settings()) as tally:
        bound = tally.bind(ada)
        assert Ingest(bound).import_status(started.id).counters.seen == 20
        Ingest(bound).resume(started.id)
        tally.drain()
        done = Ingest(bound).import_status(started.id)
        assert (done.state, done.counters) == (
            "completed",
            ImportCounters(seen=25, stored=25, chunks=25),
        )
        ponds = sorted(text.rsplit("pond ", 1)[1].strip() for text in texts(bound))
        assert ponds == sorted(f"{7 * number}." for number in range(25))


# Options and schedules


def test_options_are_of_the_schema_of_the_adapter_and_kept_at_a_resync(
    open_tally: OpenTally, folder: Path
) -> None:
    with open_tally() as tally:
        ingest = Ingest(tally.bind(ADA))
        options: JsonObject = {"exclude": ["0*.md"]}
        started = ingest.start_import(folder, adapter="files", options=options)
        with pytest.raises(StateConflict, match="other options"):
            ingest.start_import(folder, adapter="files")
        tally.drain()
        done = ingest.import_status(started.id)
        assert (done.options, done.counters.seen) == (options, 15)
        anew = ingest.resync(started.id)
        tally.drain()
        again = ingest.import_status(anew.id)
        assert (again.options, again.counters) == (
            options,
            ImportCounters(seen=15, unchanged=15),
        )
        wrongs: list[JsonObject] = [{"depth": 2}, {"exclude": "0*.md"}, {"largest": 0}]
        for wrong in wrongs:
            with pytest.raises(InvalidInput, match=r"It takes exclude, largest\."):
                ingest.start_import(folder, adapter="files", options=wrong)
        with pytest.raises(InvalidInput, match="mailbox takes none"):
            ingest.start_import(folder, adapter="mailbox", options={"depth": 2})


def test_private_addresses_are_for_callers_of_this_machine(open_sqlite: OpenTally) -> None:
    with open_sqlite(background=False) as tally:
        options: JsonObject = {"allow_private": True, "depth": 1}
        address = "http://127.0.0.1:9/"
        started = Ingest(tally.bind(ADA)).start_import(address, adapter="crawl", options=options)
        assert started.options == options
        for actor in (ADA.on("http"), ADA.on("mcp"), ADA.replace(agent="coder")):
            ingest = Ingest(tally.bind(actor))
            with pytest.raises(InvalidInput, match="this machine"):
                ingest.start_import(address, adapter="crawl", options=options)
            with pytest.raises(InvalidInput, match="this machine"):
                ingest.resync(started.id)


def test_a_source_is_imported_again_by_its_schedule(open_tally: OpenTally, folder: Path) -> None:
    clock = StepClock()
    with open_tally(clock=clock, background=False) as tally:
        ingest = Ingest(tally.bind(ADA))
        with pytest.raises(InvalidInput, match="schedule"):
            ingest.start_import(folder, adapter="files", schedule="every day")
        options: JsonObject = {"exclude": ["0*.md"]}
        first = ingest.start_import(folder, adapter="files", options=options, schedule="0 3 * * *")
        tally.drain()
        assert [each.id for each in ingest.imports()] == [first.id]
        for day in (1, 2):
            write(folder, 10 + day, f"The heron moved on day {day}.")
            clock.advance(days=1)
            tally.drain()
            newest, before, *_ = ingest.imports()
            assert (newest.state, newest.counters.stored) == ("completed", 1)
            assert (newest.options, newest.schedule, before.due_at) == (options, "0 3 * * *", None)
            assert newest.due_at is not None
            assert newest.due_at > clock.now()
        assert ingest.cancel(newest.id).state == "completed"
        clock.advance(days=1)
        tally.drain()
        assert len(ingest.imports()) == 3


def test_an_import_that_rests_is_not_started_twice_by_its_schedule(
    open_sqlite: OpenTally, folder: Path
) -> None:
    clock = StepClock()
    with open_sqlite(clock=clock, background=False) as tally:
        ingest = Ingest(tally.bind(ADA))
        started = ingest.start_import(folder, adapter="files", schedule="0 3 * * *")
        ingest.pause(started.id)
        clock.advance(days=1)
        tally.drain()
        [rests] = ingest.imports()
        assert rests.state == "paused"
        assert rests.due_at is not None
        assert rests.due_at > clock.now()


def test_a_library_that_is_missing_skips_the_record_with_the_line_that_adds_it(
    open_sqlite: OpenTally, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "page.html").write_text("<h1>Herons</h1><p>They eat fish.</p>")
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        monkeypatch.setitem(sys.modules, "trafilatura", None)
        done = imported(tally, ada, folder)
        assert (done.state, done.counters.skipped) == ("completed", {"missing_extra": 1})
        [left] = Ingest(ada).import_records(done.id, state=["skipped"])
        assert left.record_id == "page.html"
        assert "trafilatura is not installed. Run: pip install" in str(left.detail)
        monkeypatch.undo()
        assert imported(tally, ada, folder).counters.stored == 1


def test_a_preview_says_what_a_sync_would_change_and_changes_nothing(
    open_tally: OpenTally, folder: Path
) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        ingest = Ingest(ada)
        first = ingest.preview_import(folder, adapter="files", limit=2)
        assert (first.new, first.new_records) == (25, ("00.md", "01.md"))
        assert (ingest.imports(), texts(ada)) == ([], [])
        imported(tally, ada, folder)
        before = ada.memories(limit=100)
        write(folder, 3, "The heron number 3 moved to the weir.")
        (folder / "04.md").write_bytes((folder / "04.md").read_bytes())
        (folder / "07.md").unlink()
        write(folder, 30, "The heron number 30 is new.")
        preview = ingest.preview_import(folder, adapter="files")
        assert preview.dump(defaults=False) == {
            "adapter": "files",
            "target": str(folder.resolve()),
            "title": "birds",
            "new": 1,
            "changed": 1,
            "unchanged": 23,
            "vanished": 1,
            "new_records": ["30.md"],
            "changed_records": ["03.md"],
            "vanished_records": ["07.md"],
        }
        assert ada.memories(limit=100) == before
        counters = imported(tally, ada, folder).counters
        assert (counters.stored, counters.unchanged) == (2, 23)


def test_a_preview_is_for_who_may_import(open_sqlite: OpenTally, folder: Path) -> None:
    with open_sqlite() as tally:
        with pytest.raises(Denied):
            Ingest(tally.bind(ADA, scope="project:apollo")).preview_import(folder, adapter="files")
        with pytest.raises(InvalidInput, match="source_roots"):
            Ingest(tally.bind(ADA.on("http"))).preview_import(folder, adapter="files")


def test_an_import_under_way_says_how_long_the_rest_takes(
    open_sqlite: OpenTally, folder: Path
) -> None:
    (folder / "20.busy").write_text("The source asks to wait here.")
    with open_sqlite(settings=settings()) as tally:
        bound = tally.bind(ADA)
        shown = imported(tally, bound, folder, adapter="folder")
        assert (shown.counters.seen, shown.total) == (20, 26)
        assert shown.seconds_left is not None
        (folder / "20.busy").unlink()
        assert Ingest(bound).resume(shown.id).seconds_left is not None
        tally.drain()
        done = Ingest(bound).import_status(shown.id)
        assert (done.state, done.seconds_left) == ("completed", None)


class Tenths(Folder):
    """A source that cannot count its records, and tells which share of its bytes was read."""

    def corpus(self, target: str) -> Corpus:
        return replace(super().corpus(target), size=None)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        for item in super().records(target, checkpoint, known):
            yield replace(item, share=0.4) if isinstance(item, Checkpoint) else item


def test_the_records_of_a_source_are_reckoned_from_the_share_that_was_read(
    open_sqlite: OpenTally, folder: Path
) -> None:
    (folder / "10.busy").write_text("The source asks to wait here.")
    sources = {"tenths": f"{__name__}:Tenths"}
    with open_sqlite(settings=Settings(sources=sources)) as tally:
        shown = imported(tally, tally.bind(ADA), folder, adapter="tenths")
        assert (shown.counters.seen, shown.total) == (10, 25)
        assert shown.seconds_left is not None


def test_records_with_vectors_are_listed_behind_those_that_wait(
    open_sqlite: OpenTally, folder: Path
) -> None:
    with open_sqlite(settings=settings()) as tally:
        bound = tally.bind(ADA)
        ingest = Ingest(bound)
        imported(tally, bound, folder, adapter="folder")
        write(folder, 0, "The heron number 0 moved to the weir.")
        again = ingest.start_import(folder, adapter="folder")
        services_of(tally).background.run_one(str(again.job_id), "import")
        [waiting] = ingest.import_records(again.id, state=["embedding_pending"])
        assert waiting.record_id == "00.md"
        [indexed] = ingest.import_records(again.id, state=["indexed"], limit=1)
        assert indexed.record_id == "01.md"
