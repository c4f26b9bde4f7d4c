"""What a unit writes, said when it is submitted: units that write different things need not wait
for one another.

| | takes on PostgreSQL | waits for |
| --- | --- | --- |
| `EVERYTHING` | the lock of the tally, alone | everybody |
| `Writes.of(scope, …)` | that lock, shared; then one for each name | writers of one of them |
| `RUNS` | that lock, shared | `EVERYTHING` |

All locks are those of the transaction and are taken when it begins, those of names in the order of
their keys, so that two units never hold
what the other waits for. What units of one kind share beside these is written so that order does
not matter: parts and payloads are inserted where they are missing, in the order of their keys; a
run is written by the process that plays it, and a head that moved meanwhile is read again.

A unit that seldom reaches further than it declares, as a change of a memory with copies in other
scopes, is undone where it does and carried out again alone (`Database.write_mostly`).

SQLite has one writer, and every unit meets every other. What was declared is checked there too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from sqlalchemy import Connection

from tallystick.errors import StorageError
from tallystick.records import Scope

TALLY_LOCK = "30737, hashtext(current_schema())"
"""Keys of the lock of a PostgreSQL tally, as SQL: shared by its writers, or taken alone."""
FIRST_TURN = "SELECT pg_advisory_xact_lock(30737, hashtext(:schema))"
"""The same lock, taken alone, for a schema that may not be there: then there is no current one, and
what is locked by none is not locked.
"""
_NAMES = 30738
"""Class of the locks of names; their second key is a checksum of the name."""
_DECLARED = "tallystick.writes"


@dataclass(frozen=True, slots=True)
class Writes:
    """What a unit writes."""

    names: frozenset[str] | None
    """Scopes, and other things of the tally, by name; None for everything."""

    @classmethod
    def of(cls, *names: Scope | str) -> Writes:
        """Return the declaration of a unit that writes to these scopes alone."""
        return cls(frozenset(str(name) for name in names))

    def includes(self, name: str) -> bool:
        """Return True if a unit that declared this may write to `name`."""
        return self.names is None or name in self.names


EVERYTHING = Writes(None)
"""Migrations, erasures, freezes, purges, and what looks at every scope at once."""
RUNS = Writes(frozenset())
"""Runs and their steps, which one process writes, and what no other unit changes."""
CHROMA = "chroma"
"""The name under which the collections of Chroma and their state are changed."""
JOBS = "jobs"
"""The name under which jobs of any scope are leased and steered."""
TALLY = "tally"
"""The name of the tally's own stream, and of small things without a scope: tokens and settings."""


def lock_statement(writes: Writes) -> str:
    """Return the statement by which a transaction on PostgreSQL takes the locks of a unit."""
    if writes.names is None:
        return f"SELECT pg_advisory_xact_lock({TALLY_LOCK})"
    keys = sorted({zlib.crc32(name.encode()) - 2**31 for name in writes.names})
    locks = [f"pg_advisory_xact_lock({_NAMES}, {key})" for key in keys]
    return f"SELECT {', '.join([f'pg_advisory_xact_lock_shared({TALLY_LOCK})', *locks])}"


def declare_writes(tx: Connection, writes: Writes) -> None:
    """Note what the unit that begins in a transaction has declared."""
    tx.info[_DECLARED] = writes


class UndeclaredWrite(StorageError):
    """A unit writes what it did not declare; it is undone."""


def require(tx: Connection, name: str) -> None:
    """Raise UndeclaredWrite where the unit under way writes what it did not declare."""
    writes: Writes = tx.info.get(_DECLARED, EVERYTHING)
    if not writes.includes(name):
        raise UndeclaredWrite(
            f"A unit that declared {', '.join(sorted(writes.names or ())) or 'runs'} writes to "
            f"{name}. Declare it where the unit is submitted."
        )
