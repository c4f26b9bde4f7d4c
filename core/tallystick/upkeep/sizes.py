"""Sizes: where the bytes of a tally are."""

from __future__ import annotations

from collections import Counter

from tallystick.memory import MemoryContext
from tallystick.records import Actor, Sizes, SpaceUse
from tallystick.storage.engine import texts
from tallystick.storage.text import sizes
from tallystick.upkeep.retention import require_operator

_FREE = "free pages, used by what comes next"


def measure(context: MemoryContext, actor: Actor) -> Sizes:
    """Return the bytes of a tally by kind, largest first. Raises Denied."""
    require_operator(context, actor)
    location = context.store.location
    with context.store.database.read() as connection:
        by_table = sizes.bytes_by_table(connection)
        text = sizes.bytes_of_text(connection)
    uses: Counter[str] = Counter()
    for table, count in (by_table or {}).items():
        uses[texts.rows_of(table).size] += count
    if location.folder is not None and location.is_embedded:
        files = sizes.bytes_of_files(location.folder)
        database = files.pop("database", 0)
        if by_table is None:
            uses["database"] = database
        elif database > uses.total():
            uses[_FREE] = database - uses.total()
        else:
            # These pages are in the log alone until they are moved to the file.
            files["log of writes"] -= uses.total() - database
        uses.update(files)
    return Sizes(
        uses=tuple(SpaceUse(kind=kind, size=size) for kind, size in uses.most_common()),
        total=uses.total(),
        text=text,
    )
