"""Short ids: an id may be given by 6 or more characters of its beginning or end, that of a step
also by the id of its compile.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.access.gate import Gate
from tallystick.errors import InvalidInput
from tallystick.records import Actor, is_storable
from tallystick.storage import Connection, Store
from tallystick.storage.rows.short_ids import IdKind, IdMatch, ids_matching, steps_of_compile

_LEAST = 6
_ID_CHARACTERS = frozenset("0123456789abcdef-")
_ID_LENGTH = 36
_DIGEST = "sha256:"


def full_id(store: Store, gate: Gate, actor: Actor, kinds: Sequence[IdKind], text: str) -> str:
    """Return the one id of these kinds that `text` is, begins or ends, among what the actor may
    see; for the id of a compile the latest step that made it.

    A text that fits nothing is returned as it is, or printable: whoever looks for it raises
    NotFound. Raises InvalidInput where several fit.
    """
    if not is_storable(text):
        return ascii(text)
    if "step" in kinds and text.startswith(_DIGEST):
        store.database.flush()
        with store.database.read() as connection:
            steps = steps_of_compile(connection, text)
            return next((step.id for step in steps if _sees(gate, connection, actor, step)), text)
    if not _LEAST <= len(text) < _ID_LENGTH or not _ID_CHARACTERS.issuperset(text):
        return text
    if "run" in kinds or "step" in kinds:
        store.database.flush()  # what is recorded already, acknowledged or not
    with store.database.read() as connection:
        matches = {
            match.id
            for kind in kinds
            for match in ids_matching(connection, kind, text)
            if _sees(gate, connection, actor, match)
        }
    if text in matches:
        return text  # an id that somebody chose may be the beginning of another one
    if len(matches) > 1:
        raise InvalidInput(f"{text} fits {len(matches)} ids. Give more of it.")
    return matches.pop() if matches else text


def _sees(gate: Gate, connection: Connection, actor: Actor, match: IdMatch) -> bool:
    return any(
        gate.decide(connection, actor, access, match.scope).allowed
        for access in ("read", "inspect")
    )
