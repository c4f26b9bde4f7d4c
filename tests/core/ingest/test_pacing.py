"""Checkpoints come often enough that little is read twice, and each is a place to go on from."""

from __future__ import annotations

from functools import partial

from tallystick_ingest.contract import Attachment, Checkpoint, SourceRecord, Unchanged, Yielded
from tallystick_ingest.pacing import bytes_of, with_checkpoints


def _record(number: int, size: int = 1, attached: int = 0) -> SourceRecord:
    content = b"x" * attached
    attachments = [
        Attachment(name="a", media_type="x/y", size=attached, sha256="", content=content)
    ]
    return SourceRecord(
        record_id=str(number),
        version="1",
        dedupe_key=str(number),
        body="x" * size,
        attachments=tuple(attachments if attached else ()),
    )


def _kinds(items: list[tuple[str, Yielded | None]], start: str | None = None) -> list[str]:
    return [
        f"@{item.cursor}" if isinstance(item, Checkpoint) else getattr(item, "record_id", "")
        for item in with_checkpoints(items, start)
    ]


def test_a_checkpoint_comes_after_twenty_five_records_and_at_the_end() -> None:
    kinds = _kinds([(str(number), Unchanged(str(number))) for number in range(150)])

    assert [kind for kind in kinds if kind.startswith("@")] == [
        f"@{number}" for number in (24, 49, 74, 99, 124, 149)
    ]
    assert (kinds[25], kinds[-1]) == ("@24", "@149")


def test_a_checkpoint_comes_before_what_would_make_a_batch_too_large() -> None:
    items: list[tuple[str, Yielded | None]] = [
        ("a", _record(1, 10_000_000)),
        ("b", _record(2, 1_000_000, attached=6_000_000)),
        ("c", _record(3, 20_000_000)),
        ("d", _record(4)),
    ]

    assert _kinds(items) == ["1", "@a", "2", "@b", "3", "@c", "4", "@d"]
    assert bytes_of(_record(2, 1_000, attached=6_000)) == 7_000


def test_a_source_without_records_ends_where_it_began() -> None:
    assert _kinds([], "start") == ["@start"]
    assert _kinds([("a", None), ("b", None)], "start") == ["@b"]
    assert _kinds([]) == []


def test_a_long_cursor_is_written_only_where_a_checkpoint_is() -> None:
    written: list[int] = []

    def write(number: int) -> str:
        written.append(number)
        return str(number)

    items = [(partial(write, number), Unchanged(str(number))) for number in range(60)]

    assert [each.cursor for each in with_checkpoints(items) if isinstance(each, Checkpoint)] == [
        "24",
        "49",
        "59",
    ]
    assert written == [24, 49, 59]
