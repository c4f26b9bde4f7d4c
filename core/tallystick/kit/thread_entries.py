"""Entries of sessions in threads: JSON as it came in, each in its place behind the newest.

Sessions are live state, as checkpoints are: nothing in them is redacted. Of two that write at once
both may take the same place, and the id keeps them apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tallystick.checkpoints import Leaf, NewCheckpoint, StoredCheckpoint
from tallystick.errors import InvalidInput
from tallystick.tally import BoundTally

_JSON = "json"


def next_id(bound: BoundTally, newest: str | None) -> str:
    """Return the id of the entry behind the one with the id `newest`, or of the first one."""
    return f"{0 if newest is None else place_of(newest) + 1:016}-{bound.tally.new_id()}"


def place_of(id: str) -> int:
    """Return the place of an entry in its thread."""
    return int(id.partition("-")[0])


def json_entry(
    namespace: str,
    id: str,
    value: Any,
    *,
    metadata: Mapping[str, Any] | None = None,
    if_newest: str | None = None,
    **options: Any,
) -> NewCheckpoint:
    """Return an entry to put; `options` are those of `json.dumps`. Raises InvalidInput for what
    JSON does not know.
    """
    try:
        body = json.dumps(value, **options).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The session holds what JSON cannot: {error}.") from error
    return NewCheckpoint(
        namespace=namespace,
        id=id,
        parent_id=None,
        metadata=metadata or {},
        body=Leaf(_JSON, body),
        values={},
        if_newest=if_newest,
    )


def value_of(entry: StoredCheckpoint) -> Any:
    """Return the value of an entry."""
    return json.loads(entry.body.body)
