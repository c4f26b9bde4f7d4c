"""Groups of an export: the scopes that one transaction of an import brings.

Scopes whose rows need one another are one group, and small ones are packed together. An edge
between two scopes, as that of a copy to its original, comes with the one that comes later: the
other end is there by then. It is kept which line of a file is of which scope, four bytes for each,
so that the lines of one group are found again without parsing those of the others.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from tallystick.errors import CorruptTally
from tallystick.records import strict_json
from tallystick.storage import journal
from tallystick.storage.merging import DOCS, NAMED, NAMING, NUMBERED, stream_of

_NO_SCOPE = 2**32 - 1
"""The place of a line that belongs to no scope."""
_LARGEST = 2**53
"""Numbers of rows that stay are smaller: the counter of their table continues behind them."""


class Group(NamedTuple):
    """Scopes that are imported together."""

    number: int
    names: tuple[str, ...]
    unwritten: tuple[str, ...]
    """Those that nothing was written to: they have a journal, and no row."""
    needed: tuple[str, ...]
    """Other scopes to which its edges lead: they are there, or of earlier groups."""
    rows: int


class ExportGroups:
    """Which line of an export is of which scope, and the groups of these scopes.

    Its rows are added in the order of `merge_order`, those of a file in theirs.
    """

    def __init__(self, names: list[str]) -> None:
        """Begin with the scopes that the manifest names."""
        self._places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._parents = list(range(len(self._places)))
        self._lines: dict[str, array[int]] = {}
        self._scopes: dict[int, int] = {}
        self._scope_lines: dict[int, int] = {}
        self._streams = {f"scope:{name}": place for name, place in self._places.items()}
        self._docs: dict[int, int] = {}
        """The line of each memory."""
        self._ids: dict[str, dict[Any, int]] = {
            table: {} for table in (*NAMED.values(), "relations")
        }
        self._crossing: list[tuple[int, int, int]] = []
        """Edges between two scopes: their line, and those of the memories at their ends."""
        self._groups = array("I")
        self._moved: dict[int, int] = {}
        self._needed: dict[int, dict[str, set[int]]] = {}
        self._counts: dict[str, Counter[int]] = {}
        self.entries: tuple[int, int] | None = None
        """The lowest and the highest number of an entry of a journal."""
        self.secrets: dict[str, bytes | None] = dict.fromkeys(self._places)
        """The key of each scope; None of one that nothing was written to."""

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Note the next line of a file, as `portable.checked_row` returns it. Raises CorruptTally
        for a row that names what the export does not have.
        """
        lines = self._lines.setdefault(table, array("I"))
        try:
            places = self._places_of(table, row)
            place = places[0] if places else _NO_SCOPE
            self._note(table, row, place, len(lines))
        except KeyError as error:
            raise CorruptTally(
                f"A row of {table} of the export names what it does not have."
            ) from error
        if place == _NO_SCOPE and table != "access_log":
            raise CorruptTally(f"A row of {table} of the export belongs to no scope.")
        if table != "edges":
            for other in places[1:]:
                self._join(place, other)
        lines.append(place)

    def numbers(self, table: str, names: set[str]) -> list[int]:
        """Return the numbers of the rows of a table that stay, of these scopes, in order."""
        places = {self._places[name] for name in names}
        return sorted(number for number, place in self._ids[table].items() if place in places)

    def made(self, present: Collection[str], *, rows: int, scopes: int) -> list[Group]:
        """Make the groups, each full with so many `rows` or `scopes`, and return them in order.
        Scopes that are `present` need no others.
        """
        counted: Counter[int] = Counter()
        for lines in self._lines.values():
            counted.update(lines)
        members: dict[int, list[int]] = {}
        for place in range(len(self._parents)):
            members.setdefault(self._root(place), []).append(place)
        packed: list[list[int]] = []
        size = rows
        for each in members.values():
            if size >= rows or len(packed[-1]) + len(each) > scopes:
                packed.append([])
                size = 0
            packed[-1] += each
            size += sum(counted[place] for place in each)
        self._groups = array("I", [0]) * len(self._parents)
        for number, places in enumerate(packed):
            for place in places:
                self._groups[place] = number
        needed = self._place_edges({self._places[name] for name in present})
        for table, lines in self._lines.items():
            moved = self._moved if table == "edges" else {}
            self._counts[table] = Counter(
                moved.get(line, self._groups[place])
                for line, place in enumerate(lines)
                if place != _NO_SCOPE
            )
        names = list(self._places)
        return [
            Group(
                number,
                tuple(names[place] for place in places),
                tuple(names[place] for place in places if self.secrets[names[place]] is None),
                tuple(names[place] for place in sorted(needed.get(number, ()))),
                sum(counts[number] for counts in self._counts.values()),
            )
            for number, places in enumerate(packed)
        ]

    def lines_of(self, table: str, group: Group) -> Iterator[bool] | None:
        """Yield for each line of a file whether the group needs it; None where it needs none."""
        needed = self._needed.get(group.number, {}).get(table, set())
        if table not in self._lines or not (needed or self._counts[table][group.number]):
            return None
        moved = self._moved if table == "edges" else {}
        return self._marks(self._lines[table], group.number, moved, needed)

    def _marks(
        self, lines: array[int], group: int, moved: Mapping[int, int], needed: set[int]
    ) -> Iterator[bool]:
        groups = self._groups
        if not moved and not needed:
            for place in lines:
                yield place != _NO_SCOPE and groups[place] == group
            return
        for line, place in enumerate(lines):
            yield line in needed or moved.get(line, groups[place]) == group

    def _places_of(self, table: str, row: Mapping[str, Any]) -> list[int]:
        """Return the scopes that a row belongs to. Raises KeyError, CorruptTally."""
        if table == "scopes":
            return [self._places[row["name"]]]
        if table == "spaces":
            return [self._places[row["scope"]]]
        if table == "access_log":
            # A line about several scopes comes with the first.
            return [self._places[name] for name in _named_scopes(row)][:1]
        if table in ("journal", "anchors", "streams"):
            return [self._streams[row["name"] if table == "streams" else row["stream"]]]
        found = [self._scopes[row["scope_id"]]] if "scope_id" in row else []
        if table != "memories":
            memories = self._lines.get("memories", array("I"))
            found += [memories[self._docs[row[column]]] for column in DOCS if column in row]
        for column in NAMING.get(table, ()):
            found.append(self._ids[NAMED[column]][row[column]])
        if "relation_id" in row:
            found.append(self._ids["relations"][row["relation_id"]])
        return found

    def _note(self, table: str, row: Mapping[str, Any], place: int, line: int) -> None:
        """Keep what later rows name."""
        if table == "scopes":
            if self.secrets[row["name"]] is not None:
                raise CorruptTally(f"The export has the scope {row['name']!a} twice.")
            self.secrets[row["name"]] = row["secret"]
            self._scopes[row["id"]] = place
            self._scope_lines[place] = line
        elif table == "memories":
            self._docs[row["doc"]] = line
        elif table == "edges":
            self._note_edge(row, line)
        elif table == "journal":
            number = _checked_number(table, row["sequence"])
            lowest, highest = self.entries or (number, number)
            self.entries = (min(number, lowest), max(number, highest))
        elif table in self._ids:
            if table in NUMBERED:
                _checked_number(table, row["id"])
            self._ids[table][row["id"]] = place
        if table == "runs":
            self._streams[journal.run_stream(row["id"])] = place
        if table == "threads":
            self._streams[stream_of(row)] = place

    def _note_edge(self, row: Mapping[str, Any], line: int) -> None:
        start, end = self._docs[row["from_doc"]], self._docs[row["to_doc"]]
        first, second = (self._lines["memories"][each] for each in (start, end))
        of = self._scopes[row["scope_id"]]
        if of not in (first, second):
            self._join(of, first)
            self._join(of, second)
        if first != second:
            self._crossing.append((line, start, end))

    def _place_edges(self, present: set[int]) -> dict[int, set[int]]:
        """Give each edge between scopes to the group of the one that comes later; return the
        scopes that a group needs for that.
        """
        memories = self._lines.get("memories", array("I"))
        scopes: dict[int, set[int]] = {}
        for line, *ends in self._crossing:
            (_, early, end), (_, late, _) = sorted(
                (memories[end] not in present, self._groups[memories[end]], end) for end in ends
            )
            self._moved[line] = late
            if early != late:
                place = memories[end]
                scopes.setdefault(late, set()).add(place)
                needed = self._needed.setdefault(late, {"memories": set(), "scopes": set()})
                needed["memories"].add(end)
                needed["scopes"].add(self._scope_lines[place])
        return scopes

    def _join(self, one: int, other: int) -> None:
        one, other = sorted((self._root(one), self._root(other)))
        self._parents[other] = one

    def _root(self, place: int) -> int:
        while self._parents[place] != place:
            self._parents[place] = self._parents[self._parents[place]]
            place = self._parents[place]
        return place


def _checked_number(table: str, number: int) -> int:
    if not 0 < number < _LARGEST:
        raise CorruptTally(f"A row of {table} of the export has a number that no release gives.")
    return number


def _named_scopes(row: Mapping[str, Any]) -> list[str]:
    try:
        names = strict_json(row["scopes"])
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorruptTally("A row of access_log of the export names no scopes.")
    return names
