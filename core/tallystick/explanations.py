"""Explanations: what does not validate, in words that say what to give instead."""

from __future__ import annotations

from typing import Any

_MOST_EXPLAINED = 20
_MOST_LISTED = 1_000
"""Problems that are made into values at most, which takes longer than finding them."""
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


def explain_validation(error: Any, *, whole: str = "value") -> str:
    """Turn a pydantic ValidationError into one line per field, without echoing the values given:
    20 of them, and of more than 1,000 only their number. `whole` names the value that was checked.
    """
    count = error.error_count()
    if count > _MOST_LISTED:
        return f"{whole}: {count:,} problems"
    lines = [
        f"{'.'.join(str(part) for part in problem['loc']) or whole}: {explain_problem(problem)}"
        for problem in error.errors(include_input=False, include_url=False, include_context=False)[
            :_MOST_EXPLAINED
        ]
    ]
    more = [f"and {count - _MOST_EXPLAINED:,} more"] if count > _MOST_EXPLAINED else []
    return "; ".join([*lines, *more])
