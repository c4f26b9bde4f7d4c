"""SourceContract: the behaviour of a source's adapter, written once and given each of them.

Subclass it in a test module whose name pytest collects, with a fixture `source` that returns a
`Source`: an adapter, and a target of at least two records that nobody changes meanwhile.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tallystick_ingest.contract import SourceAdapter

_LARGEST_CURSOR = 256_000
"""Characters of a checkpoint: it is stored after each batch."""
_PRIVACY = ("personal", "internal", "public")


@dataclass(frozen=True)
class Source:
    """An adapter and a target that it reads."""

    open: Callable[[], SourceAdapter]
    """Makes a fresh adapter: what one remembers is of no use to the next."""
    target: str
    not_of_format: tuple[str, ...] = ()
    """Targets that are none of its kind."""
    skipped: frozenset[str] = field(default_factory=frozenset)
    """Ids of records of the target that cannot be taken."""


class SourceContract:
    """The behaviour of every adapter of a source."""

    def test_it_says_what_it_is(self, source: Source) -> None:
        adapter = source.open()

        assert adapter.name
        assert adapter.version
        assert adapter.privacy_class in _PRIVACY
        _validators().Draft202012Validator.check_schema(dict(adapter.metadata_schema))

    def test_a_corpus_has_the_same_identity_each_time(self, source: Source) -> None:
        first, second = source.open().corpus(source.target), source.open().corpus(source.target)

        assert first.id
        assert first == second

    def test_the_same_corpus_gives_the_same_in_the_same_order(self, source: Source) -> None:
        assert _read(source) == _read(source)

    def test_records_have_ids_versions_and_keys_of_their_own(self, source: Source) -> None:
        records = _records(_read(source))
        ids = [record.record_id for record in records]

        assert len(records) >= 2
        assert len(set(ids)) == len(ids)
        assert all(record.version and record.dedupe_key for record in records)

    def test_metadata_is_of_the_schema(self, source: Source) -> None:
        validator = _validators().Draft202012Validator(dict(source.open().metadata_schema))

        for record in _records(_read(source)):
            validator.validate(dict(record.metadata))

    def test_each_checkpoint_gives_what_comes_after_it(self, source: Source) -> None:
        contract = _contract()
        whole = _read(source)
        places = [
            (place, item.cursor)
            for place, item in enumerate(whole)
            if isinstance(item, contract.Checkpoint)
        ]

        assert places
        for place, cursor in places:
            rest = _without_checkpoints(_read(source, checkpoint=cursor))
            assert rest == _without_checkpoints(whole[place + 1 :])

    def test_checkpoints_are_close_to_each_other_small_and_last(self, source: Source) -> None:
        contract = _contract()
        whole = _read(source)
        count = size = 0

        assert isinstance(whole[-1], contract.Checkpoint)
        for item in whole:
            if isinstance(item, contract.Checkpoint):
                assert len(item.cursor) <= _LARGEST_CURSOR
                count = size = 0
                continue
            count += 1
            size += _bytes(item)
            assert count <= contract.CHECKPOINT_RECORDS
            assert count == 1 or size <= contract.CHECKPOINT_BYTES

    def test_what_is_stored_is_named_and_carries_no_body(self, source: Source) -> None:
        contract = _contract()
        first = _read(source)
        stored = {record.record_id: record.version for record in _records(first)}

        again = _read(source, known=stored)

        assert _records(again) == []
        unchanged = [item.record_id for item in again if isinstance(item, contract.Unchanged)]
        assert unchanged == [record.record_id for record in _records(first)]

    def test_what_is_stored_in_another_version_is_read(self, source: Source) -> None:
        first = _records(_read(source))
        changed = first[-1]
        stored = {record.record_id: record.version for record in first}
        stored[changed.record_id] = "another version"

        assert _records(_read(source, known=stored)) == [changed]

    def test_what_cannot_be_taken_is_named_with_its_reason(self, source: Source) -> None:
        contract = _contract()
        skipped = {
            item.record_id: item for item in _read(source) if isinstance(item, contract.Skipped)
        }

        assert source.skipped <= set(skipped)
        assert all(item.detail for item in skipped.values())

    def test_attachments_are_what_their_digests_say(self, source: Source) -> None:
        contract = _contract()

        for record in _records(_read(source)):
            for attachment in record.attachments:
                if attachment.content is None:
                    assert attachment.size > contract.LARGEST_ATTACHMENT
                    continue
                assert len(attachment.content) == attachment.size <= contract.LARGEST_ATTACHMENT
                assert hashlib.sha256(attachment.content).hexdigest() == attachment.sha256

    def test_a_target_of_another_kind_is_refused_with_what_was_found(self, source: Source) -> None:
        contract = _contract()

        for target in source.not_of_format:
            with pytest.raises(contract.NotOfFormat) as refused:
                source.open().corpus(target)
            assert len(str(refused.value)) > 10

    def test_a_connector_opens_lists_and_replays_the_same_twice(self, source: Source) -> None:
        contract = _contract()
        adapter: Any = source.open()
        if not isinstance(adapter, contract.Connector):
            pytest.skip("no connector")
        record = _records(_read(source))[0]

        adapter.authorize()
        resources = list(adapter.list_resources())
        replayed = list(adapter.replay(source.target, record.record_id, None))

        assert resources
        assert all(resource.target and resource.title for resource in resources)
        assert replayed == list(adapter.replay(source.target, record.record_id, None))
        assert [(each.record_id, each.version) for each in _records(replayed)] == [
            (record.record_id, record.version)
        ]


def _validators() -> Any:
    return importlib.import_module("jsonschema.validators")


def _contract() -> Any:
    """The module of the contract, which is above the core: it is loaded when a test runs."""
    return importlib.import_module("tallystick_ingest.contract")


def _read(
    source: Source, checkpoint: str | None = None, known: Mapping[str, str] | None = None
) -> list[Any]:
    versions = known or {}
    return list(source.open().records(source.target, checkpoint, versions.get))


def _records(items: list[Any]) -> list[Any]:
    kind = _contract().SourceRecord
    return [item for item in items if isinstance(item, kind)]


def _without_checkpoints(items: list[Any]) -> list[Any]:
    kind = _contract().Checkpoint
    return [item for item in items if not isinstance(item, kind)]


def _bytes(item: Any) -> int:
    return len(getattr(item, "body", b"")) + sum(
        len(each.content or b"") for each in getattr(item, "attachments", ())
    )
