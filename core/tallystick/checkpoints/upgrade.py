"""Upgrade of checkpoints of the first schema, once, when a tally of that time is opened.

The first schema stored each channel value whole, as (type, bytes) under `parts`. It becomes a leaf
with the same type and bytes: readers see no difference, and what is put from then on is shared.
"""

from __future__ import annotations

import json

from tallystick.checkpoints.context import CheckpointsContext
from tallystick.checkpoints.stored import NewCheckpoint, PendingWrite
from tallystick.checkpoints.threads import Threads
from tallystick.checkpoints.values import Leaf
from tallystick.records import Actor, Scope
from tallystick.storage import Store, first_checkpoints
from tallystick.storage.checkpoint_scan import ThreadName


def upgrade(store: Store, context: CheckpointsContext) -> int:
    """Move the rows of the first schema's tables; return how many checkpoints. Interrupted, it goes
    on the next time.
    """
    with store.database.read() as connection:
        threads = first_checkpoints.threads(connection)
    return sum(_upgrade_thread(store, context, thread) for thread in threads)


def _upgrade_thread(store: Store, context: CheckpointsContext, thread: ThreadName) -> int:
    actor = Actor(user="tallystick", surface="upgrade")
    threads = Threads(context, actor, Scope.parse(thread.scope), trusted=True)
    with store.database.read() as connection:
        states = first_checkpoints.states(connection, thread.id)
        writes = first_checkpoints.writes(connection, thread.id)
    for state in states:
        with store.database.read() as connection:
            values = first_checkpoints.values(connection, thread.id, state.namespace, state.id)
        threads.put(
            thread.name,
            NewCheckpoint(
                namespace=state.namespace,
                id=state.id,
                parent_id=state.parent_id,
                metadata=json.loads(state.metadata),
                body=Leaf(state.body_type, state.body),
                values={channel: Leaf(*value) for channel, value in values.items()},
            ),
        )
    for write in writes:
        pending = PendingWrite(
            write.task_id,
            write.task_path,
            write.position,
            write.channel,
            Leaf(write.value_type, write.value),
        )
        threads.put_writes(
            thread.name,
            namespace=write.namespace,
            checkpoint_id=write.checkpoint_id,
            writes=[pending],
        )
    store.database.write(lambda tx: first_checkpoints.remove(tx, thread.id), name="thread.upgrade")
    return len(states)
