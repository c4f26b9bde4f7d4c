"""Packing: what SQLite stores is a fraction of what is read, and is read byte for byte."""

from __future__ import annotations

import contextlib
import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick import Tally
from tallystick.errors import CorruptTally
from tallystick.storage.engine import packing
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
_PROSE = re.sub(r"\s+", " ", " ".join(topics.values()))
_TEXTS = 300
_DIGITS = st.text("0123456789abcdef", min_size=63, max_size=65)
_NUMBERS = st.binary(max_size=1_200)


def _prose(length: int) -> list[str]:
    source = random.Random(length)
    begins = (source.randrange(len(_PROSE) - length) for _ in range(_TEXTS))
    return [_PROSE[begin : begin + length] for begin in begins]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(("length", "times"), [(1_000, 4.0), (600, 5.0)])
def test_a_tally_takes_no_more_than_its_share_of_the_disk(
    tmp_path: Path, length: int, times: float
) -> None:
    with Tally.open(tmp_path / "empty", background=False) as tally:
        tally.bind().remember("The first.")
    with Tally.open(tmp_path / "full", background=False) as tally:
        texts = _prose(length)
        tally.bind().remember_many(texts)

    added = _size(tmp_path / "full") - _size(tmp_path / "empty")
    assert added < times * sum(len(text.encode()) for text in texts)


@given(st.text(max_size=2_000))
def test_a_text_is_read_as_it_was_written(text: str) -> None:
    assert packing.unpack_text(packing.pack_text(text)) == text
    assert packing.unpack_text(packing.pack_id(text)) == text
    assert packing.unpack_text(packing.pack_digest(text)) == text
    assert packing.unpack_text(packing.pack_name(text)) == text


@given(_NUMBERS)
def test_bytes_and_vectors_are_read_as_they_were_written(value: bytes) -> None:
    assert packing.unpack_bytes(packing.pack_bytes(value)) == value
    assert packing.unpack_vector(packing.pack_vector(value)) == value


@given(st.uuids(), _DIGITS, st.sampled_from(["sha256:", "hmac-sha256:", "md5:", "sha256"]))
def test_ids_and_digests_that_differ_are_stored_as_values_that_differ(
    number: uuid.UUID, digits: str, prefix: str
) -> None:
    ids = [str(number), str(number).upper(), number.hex, f"{number}"[:-1]]
    digests = [prefix + digits, (prefix + digits).upper(), digits]
    for values, pack in ((ids, packing.pack_id), (digests, packing.pack_digest)):
        assert [packing.unpack_text(pack(value)) for value in values] == values
        assert len({pack(value) for value in values}) == len(set(values))


@given(st.lists(st.uuids(), max_size=20))
def test_ids_are_ordered_as_their_texts_are(numbers: list[uuid.UUID]) -> None:
    ids = [str(number) for number in numbers]
    packed = [packing.pack_id(value) for value in ids]
    assert all(isinstance(value, bytes) for value in packed)
    assert sorted(packed, key=bytes) == [packing.pack_id(value) for value in sorted(ids)]  # type: ignore[arg-type]


@given(st.binary(max_size=300), st.integers(0, 10_000), st.integers(1, 255))
def test_damage_is_told_as_damage(value: bytes, place: int, flip: int) -> None:
    """What was changed on the disk is another value or CorruptTally, never another error."""
    text = packing.pack_text("The heron nests by the river in March. " * 4)
    vector = packing.pack_vector(b"\x00\x2c\x11\x2c" * 64)
    assert isinstance(text, bytes)
    assert vector is not None
    for stored, unpack in (
        (value, packing.unpack_text),
        (value, packing.unpack_bytes),
        (value, packing.unpack_vector),
        (_flipped(text, place, flip), packing.unpack_text),
        (text[: place % len(text)], packing.unpack_bytes),
        (_flipped(vector, place, flip), packing.unpack_vector),
    ):
        with contextlib.suppress(CorruptTally):
            unpack(stored)


def _flipped(stored: bytes, place: int, flip: int) -> bytes:
    place %= len(stored)
    return stored[:place] + bytes((stored[place] ^ flip,)) + stored[place + 1 :]


def test_a_hostile_value_cannot_ask_for_all_memory() -> None:
    frame = b"\xe0" + (1 << 40).to_bytes(8, "little")  # one segment, its size in eight bytes
    with pytest.raises(CorruptTally, match="more than may be held"):
        packing.unpack_bytes(b"\x01" + frame)


@pytest.mark.sqlite
def test_the_database_searches_in_what_is_packed(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The harbour master counts the boats before the tide turns.")
        with services_of(tally).store.database.read() as connection:
            plain = "SELECT count(*) FROM {} WHERE instr({}, 'harbour master')"
            stored = plain.format("memory_versions", "body")
            unpacked = plain.format("memory_versions", "unpacked_text(body)")
            assert connection.exec_driver_sql(stored).scalar() == 0
            assert connection.exec_driver_sql(unpacked).scalar() == 1
