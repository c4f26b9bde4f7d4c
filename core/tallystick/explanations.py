"""Explanations: what does not validate, in words that say what to give instead."""

from __future__ import annotations

from typing import Any

_WANTED = {
    "string_type": "takes a text",
    "int_type": "takes a whole number",
    "int_parsing": "takes a whole number",
    "bool_type": "takes True or False",
    "tuple_type": "takes a list; write [value] for one",
    "list_type": "takes a list; write [value] for one",
    "dict_type": "takes a mapping",
    "mapping_type": "takes a mapping",
}


def explain_problem(problem: Any) -> str:
    """Return one problem of a pydantic ValidationError in words, without the value that was
    given.
    """
    text = str(_WANTED.get(problem["type"], problem["msg"]))
    return text.removeprefix("Value error, ")


def explain_validation(error: Any) -> str:
    """Turn a pydantic ValidationError into one line per field, without echoing the values given."""
    lines = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {explain_problem(problem)}"
        for problem in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "; ".join(lines)
