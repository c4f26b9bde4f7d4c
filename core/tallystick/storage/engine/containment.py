"""Containment: the condition that a row contains the bytes of a text, however that is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    Column,
    Connection,
    LargeBinary,
    Table,
    TableValuedAlias,
    Text,
    bindparam,
    cast,
    exists,
    func,
    literal,
    or_,
)
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeEngine

from tallystick.storage.engine import texts
from tallystick.storage.engine.dialects import is_postgres, unpack

_SHORT = 12
"""Bytes below which a text is searched for as a whole JSON value: shorter ones occur inside of
other words.
"""


def forms(text: str) -> tuple[bytes, ...]:
    """Return the bytes under which a text is stored: as it is, and as JSON within JSON."""
    distinct = fragment_forms(text)
    if len(distinct[0]) >= _SHORT:
        return distinct
    return (*(b'"' + form + b'"' for form in distinct[:2]), b'\\"' + distinct[0] + b'\\"')


def fragment_forms(text: str) -> tuple[bytes, ...]:
    """Same as `forms`, for a text that is searched for inside of other words too, however short."""
    variants: list[bytes] = []
    shape = text
    for _ in range(3):
        plain = shape.encode("utf-8", "surrogatepass")
        variants.append(plain)
        variants.append(json.dumps(shape)[1:-1].encode())
        shape = json.dumps(shape, ensure_ascii=False)[1:-1]
    return tuple(dict.fromkeys(variants))


def needles_of(texts: Iterable[str], fragments: Iterable[str] = ()) -> tuple[bytes, ...]:
    """Return the bytes by which texts are searched for, and fragments inside of other words too."""
    needles = [form for text in texts if text for form in forms(text)]
    needles += [form for text in fragments for form in fragment_forms(text)]
    return tuple(dict.fromkeys(needles))


def holds(
    connection: Connection,
    table: Table,
    needles: Sequence[bytes],
    within: Sequence[int] | None = None,
) -> ColumnElement[bool]:
    """Return the condition for rows of these scopes, or for None of all, of which a column that is
    declared to hold text contains one of `needles`.
    """
    condition = or_(
        False,
        *(
            (contains_name if is_name else contains)(connection, column, needles)
            for column, is_name in texts.text_columns(table)
        ),
    )
    return condition if within is None else condition & table.c.scope_id.in_(within)


def contains(
    connection: Connection, column: Column[Any], needles: Sequence[bytes]
) -> ColumnElement[bool]:
    """Return the condition that a column contains one of `needles`, in what was stored there as in
    what is packed; no pattern, so nothing in them needs escaping.
    """
    kind: TypeEngine[Any] = LargeBinary() if is_binary(column) else Text()
    content = unpack(connection, column)
    readable, others = _sorted_out(needles)
    name = f"needles_{column.table.name}_{column.name}"
    listed: TableValuedAlias
    if is_postgres(connection):
        stored: Sequence[Any] = needles if is_binary(column) else readable
        array = func.unnest(bindparam(name, list(stored), type_=ARRAY(kind)))
        listed = array.table_valued("value").render_derived()
        return exists().where(func.position(listed.c.value.op("IN")(content)) > 0)
    listed = func.json_each(bindparam(name, json.dumps(readable), type_=Text())).table_valued(
        "value"
    )
    held = exists().where(func.instr(content, cast(listed.c.value, kind)) > 0)
    if not is_binary(column):
        return held
    return or_(
        held, *(func.instr(content, literal(needle, LargeBinary())) > 0 for needle in others)
    )


def _sorted_out(needles: Iterable[bytes]) -> tuple[list[str], list[bytes]]:
    """Return the needles that a column of text can hold, and the others."""
    readable, others = [], []
    for needle in needles:
        try:
            text = needle.decode()
        except UnicodeDecodeError:
            others.append(needle)
        else:
            if "\x00" in text:
                others.append(needle)
            else:
                readable.append(text)
    return readable, others


def contains_name(
    connection: Connection, column: Column[Any], needles: Sequence[bytes]
) -> ColumnElement[bool]:
    """Same as `contains`, for a column that is a name: a short text, which `forms` gives as a JSON
    value, may be all of it.
    """
    whole = [
        needle[1:-1].decode()
        for needle in needles
        if len(needle) < _SHORT + 2
        and needle[:1] == needle[-1:] == b'"'
        and needle.isascii()
        and b"\x00" not in needle  # which no name holds, and PostgreSQL takes none
    ]
    return contains(connection, column, needles) | column.in_(whole)


def is_binary(column: Column[Any]) -> bool:
    """Return True for a column of bytes."""
    return column.type.python_type is bytes
