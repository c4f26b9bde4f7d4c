"""The types of arguments where they arrive as JSON, read from the signatures of verbs."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Wire:
    """Marks the type that stands for an annotation in JSON, where Python takes more."""

    type: Any


PROCESS_ONLY: Final = Wire(None)
"""Marks an argument that only code of the process can give, such as a function."""


def wire_type(hint: Any) -> Any:
    """Return the type of an argument in JSON, with its description and bounds; None for an argument
    that has none.

    Checks that only Python needs, such as the completion of ids, are left out.
    """
    if get_origin(hint) is not Annotated:
        return _plain_type(hint)
    plain, marks = _plain_type(hint), list(hint.__metadata__)
    while any(isinstance(mark, Wire) for mark in marks):
        marks.pop(0)
    fields = [mark for mark in marks if isinstance(mark, FieldInfo)]
    return Annotated[(plain, *fields)] if fields else plain


def _plain_type(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        wires = [mark for mark in hint.__metadata__ if isinstance(mark, Wire)]
        return wires[-1].type if wires else _plain_type(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(_plain_type, get_args(hint)))
    return hint
