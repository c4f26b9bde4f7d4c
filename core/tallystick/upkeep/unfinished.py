"""Unfinished erasure: what is left to do where a process died between the transaction that removed
the text and the rewriting of the files. Every opening looks for it.
"""

from __future__ import annotations

from tallystick.memory import MemoryContext
from tallystick.storage.rows import objects, settings_rows

PENDING = "erase.pending"
"""Setting: text was erased from tables, and files are still to be rewritten."""


def finish_erasure(context: MemoryContext) -> bool:
    """Delete the objects of what was erased, and rewrite the files where an erasure noted it;
    return True if one did. Raises StorageError, BusyTally.
    """
    database = context.store.database
    objects.remove_doomed(database)
    with database.read() as connection:
        if settings_rows.get_setting(connection, PENDING) != "1":
            return False
    from tallystick.memory.reconcile import begin_anew
    from tallystick.storage.text import erasing

    if context.index is not None and (context.index.start_over() or context.index.is_open):
        begin_anew(context)
    erasing.rewrite(database)
    database.write(lambda tx: settings_rows.set_setting(tx, PENDING, "0"), name="erase.done")
    return True
