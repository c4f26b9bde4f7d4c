"""A way in for the memories of other products: previewed first, done again without harm.

A reader yields one entry for each memory, with the line or place that it came from, and the reason
for each that it cannot read. Nothing is guessed: an export of several owners is imported for the
owners that somebody names. What was said in a conversation becomes its turns, in their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Literal

from tallystick.errors import InvalidInput, InvalidRecord, PositionTaken
from tallystick.kit.sessions import note, stored_text
from tallystick.memory import Put
from tallystick.records import MOST_RESULTS, Memory, NewMemory, Remembered
from tallystick.records._base import Record
from tallystick.tally import BoundTally
from tallystick_imports.entries import Entry, Reader, Unreadable

ForeignFormat = Literal[
    "mem0",
    "langmem",
    "langgraph-store",
    "llama-index",
    "jsonl",
    "letta",
    "zep",
    "graphiti",
    "openmemory",
    "chatgpt",
    "claude",
    "claude-code",
    "codex",
]
_READERS: Mapping[ForeignFormat, str] = {
    "mem0": "products:read_mem0",
    "langmem": "products:read_langmem",
    "langgraph-store": "products:read_store",
    "llama-index": "products:read_llama_index",
    "jsonl": "products:read_jsonl",
    "letta": "letta:read_letta",
    "zep": "zep:read_zep",
    "graphiti": "zep:read_graphiti",
    "openmemory": "openmemory:read_openmemory",
    "chatgpt": "chatgpt:read_chatgpt",
    "claude": "claude:read_claude",
    "claude-code": "sessions:read_claude_code",
    "codex": "sessions:read_codex",
}
_PAGE = 200
"""Memories of one transaction: an import that is cut off goes on after those that are stored."""
_MOST_SKIPPED = 100
"""Reasons that an answer lists; more are counted."""


class SkippedMemory(Record):
    """A memory that could not be read, and why."""

    place: str
    """Line of the file, or address in it."""
    reason: str


class Imported(Record):
    """The result of an import, or what it would be."""

    format: ForeignFormat
    mode: Literal["preview", "apply"]
    read: int
    """Memories in the file, of the chosen owners, that can be imported."""
    owners: dict[str, int] = {}
    """Number of memories by who they belong to in the file."""
    kinds: dict[str, int] = {}
    created: int = 0
    present: int = 0
    """Those that were there already, as after an import that was cut off."""
    found: int = 0
    """Those that were read back afterwards."""
    skipped: tuple[SkippedMemory, ...] = ()
    skipped_count: int = 0


def import_memories(
    bound: BoundTally,
    format: ForeignFormat,
    file: Path,
    *,
    only: Iterable[str] = (),
    mode: Literal["preview", "apply"] = "preview",
    progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Import the memories of another product into the bound scope, or say what that would do.

    `only` names the owners to take: users of mem0, namespaces of a store, keys of a chat store; it
    is needed where the file has several, and `*` takes all. Doing it again adds nothing twice.
    `progress` is told after each transaction how many are done, and of how many.
    Raises InvalidInput for a file of another form and for owners that are not named; Denied.
    """
    names = list(only)
    entries, skipped = read(format, file)
    owners = Counter(entry.owner for entry in entries)
    unknown = [owner for owner in names if owner != "*" and owner not in owners]
    if unknown:
        raise InvalidInput(
            f"{file} has nothing of {', '.join(map(repr, unknown))}; it is of {_names(owners)}.",
            argument="only",
        )
    if len(owners) > 1 and not names and mode == "apply":
        raise InvalidInput(
            f"{file} is of {len(owners)} owners: {_names(owners)}. Name those whose memories "
            "belong into this scope, or * for all: one user's memories are not another's.",
            argument="only",
        )
    chosen = [entry for entry in entries if not names or "*" in names or entry.owner in names]
    created = present = verified = 0
    if mode == "apply":
        created, present, verified = _Storing(bound, skipped).store(chosen, progress)
        numbers = {"created": created, "present": present, "skipped": len(skipped)}
        note(bound, "memory.imported", {"format": format, **numbers})
    kinds = Counter(
        "store item" if isinstance(entry.value, Put) else entry.value.kind for entry in chosen
    )
    return Imported(
        format=format,
        mode=mode,
        read=len(chosen),
        owners=dict(sorted(owners.items())),
        kinds=dict(sorted(kinds.items())),
        created=created,
        present=present,
        found=verified,
        skipped=tuple(
            SkippedMemory(place=each.place, reason=each.reason) for each in skipped[:_MOST_SKIPPED]
        ),
        skipped_count=len(skipped),
    )


class _Storing:
    """Stores entries page by page, each page in a transaction."""

    def __init__(self, bound: BoundTally, skipped: list[Unreadable]) -> None:
        self.bound = bound
        self.skipped = skipped
        self._said: dict[str, dict[str, list[str]]] = {}
        """Ids of the turns that a conversation had when the import came to it, by their text."""

    def store(
        self, chosen: list[Entry], progress: Callable[[int, int], None] | None
    ) -> tuple[int, int, int]:
        """Store the entries; return how many are new, were there already, and were read back."""
        created = present = verified = done = 0
        remaining = iter(chosen)
        while page := list(islice(remaining, _PAGE)):
            done += len(page)
            fresh = [each for each in page if not self._is_said(each.value)]
            present, verified = (n + len(page) - len(fresh) for n in (present, verified))
            results = self._remember([each for each in fresh if isinstance(each.value, NewMemory)])
            created += sum(result.status == "created" for result in results)
            present += sum(result.status != "created" for result in results)
            verified += sum(self.bound.get(each.id).id == each.id for each in results if each.id)
            stored = self._put([each for each in fresh if isinstance(each.value, Put)])
            created += stored.count(True)
            present += stored.count(False)
            verified += len(stored)
            if progress is not None:
                progress(done, len(chosen))
        return created, present, verified

    def _is_said(self, value: NewMemory | Put) -> bool:
        """Return True for a turn that its conversation had before: one of an earlier import, or one
        that a hook has kept, which has another place there.
        """
        if isinstance(value, Put) or value.conversation is None or value.kind != "turn":
            return False
        if value.conversation not in self._said:
            self._said[value.conversation] = self._turns(value.conversation)
        said = self._said[value.conversation]
        ids = said.get(stored_text(self.bound, value.content)) if said else None
        return bool(ids and ids.pop())

    def _turns(self, conversation: str) -> dict[str, list[str]]:
        said: dict[str, list[str]] = defaultdict(list)
        turns: list[Memory] = []
        with suppress(InvalidInput):  # a name that none may have: it is skipped with that reason
            while turns := self.bound.memories(
                kinds=("turn",),
                conversation=conversation,
                limit=MOST_RESULTS,
                before=turns[-1].id if turns else None,
            ):
                for turn in turns:
                    if turn.scope == self.bound.scope:
                        said[turn.content].append(turn.id)
        return said

    def _remember(self, entries: list[Entry]) -> list[Remembered]:
        new = [each.value for each in entries if isinstance(each.value, NewMemory)]
        if not new:
            return []
        try:
            return self.bound.remember_many(new)
        except (InvalidInput, InvalidRecord, PositionTaken):
            # One of them is refused: each by itself, so that the others are kept.
            results = [self._remember_one(each.place, each.value) for each in entries]
            return [result for result in results if result is not None]

    def _remember_one(self, place: str, new: NewMemory | Put) -> Remembered | None:
        assert isinstance(new, NewMemory)
        try:
            try:
                [result] = self.bound.remember_many([new])
            except PositionTaken:
                # What was said there is another thing: the conversation was kept by a hook, or it
                # went on from another branch.
                [result] = self.bound.remember_many([new.model_copy(update={"position": None})])
        except (InvalidInput, InvalidRecord) as error:
            self.skipped.append(Unreadable(place, str(error)))
            return None
        return result

    def _put(self, entries: list[Entry]) -> list[bool]:
        """Put items; return for each that is stored whether it is new."""
        puts = [each.value for each in entries if isinstance(each.value, Put)]
        if not puts:
            return []
        addresses = [(put.namespace, put.key) for put in puts]
        before = self.bound.items.get(addresses)
        try:
            self.bound.items.put(puts)
        except (InvalidInput, InvalidRecord):
            for each in entries:
                self._put_one(each)
        after = self.bound.items.get(addresses)
        return [old is None for old, new in zip(before, after, strict=True) if new is not None]

    def _put_one(self, entry: Entry) -> None:
        assert isinstance(entry.value, Put)
        try:
            self.bound.items.put([entry.value])
        except (InvalidInput, InvalidRecord) as error:
            self.skipped.append(Unreadable(entry.place, str(error)))


def _names(owners: Mapping[str, int]) -> str:
    named = ", ".join(f"{owner} ({count})" for owner, count in sorted(owners.items())[:8])
    return named + (f" and {len(owners) - 8} others" if len(owners) > 8 else "")


def read(format: ForeignFormat, file: Path) -> tuple[list[Entry], list[Unreadable]]:
    """Return what a file holds, and what of it cannot be read. Raises InvalidInput."""
    module, _, name = _READERS[format].partition(":")
    reader: Reader = getattr(import_module(f"tallystick_imports.readers.{module}"), name)
    entries: list[Entry] = []
    unreadable: list[Unreadable] = []
    for each in reader(file):
        if isinstance(each, Entry):
            entries.append(each)
        else:
            unreadable.append(each)
    if not entries and not unreadable:
        raise InvalidInput(f"{file} holds no memories that can be read as {format}.")
    return entries, unreadable
