"""The root of the tree, errors that any room raises, and what does not validate in words that say
what to give instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

_NAMED = re.compile(r"`([a-z_]+)`")
Retry = Literal["until_back", "some_times", "never"]
"""A job that meets an error is tried again until what was away is back, some times, or never."""


class TallystickError(Exception):
    """Something in Tallystick failed. Catch this to catch everything below."""

    code: ClassVar[str] = "tallystick_error"
    """The stable name of this error for programs, logs and other languages."""
    retry: Retry = "some_times"
    """What becomes of a job that meets this error."""
    needs_proof: bool = False
    """True if its text is to blame only once the provider has answered for another text since."""
    end_state: ClassVar[Literal["failed", "dead"]] = "failed"
    """The state in which a job ends that is not tried again after this error."""
    _facts: ClassVar[tuple[str, ...]] = ()
    """Attributes that `facts` returns."""

    def facts(self) -> dict[str, Any]:
        """Return what a program needs as JSON values: no text that somebody stored."""
        return {name: _plain(getattr(self, name)) for name in self._facts}

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).strip())


class InvalidInput(TallystickError):
    """A value cannot be used as given; nothing was stored. Correct the argument and call again."""

    code = "invalid_input"
    _facts = ("argument",)

    def __init__(self, message: str | None = None, *, argument: str | None = None) -> None:
        begins = _NAMED.match(message or "")
        self.argument = argument or (begins and begins[1])
        """The name of the argument or field, where it is a single one: given, or the name in
        backquotes with which the message begins.
        """
        super().__init__(message)


class UnknownName(InvalidInput, AttributeError):
    """This object has no verb of that name. The message names the one that does the same."""

    code = "unknown_name"


class UnknownArgument(InvalidInput, TypeError):
    """This verb has no argument of that name. The message says how it is written."""

    code = "unknown_argument"


class InvalidRecord(InvalidInput):
    """A record or its attributes do not validate; nothing was stored. The message names each
    field.
    """

    code = "invalid_record"


class InvalidScope(InvalidInput):
    """A scope must read like `private:alice`, `project:apollo` or `public`."""

    code = "invalid_scope"


class IdempotencyMismatch(InvalidInput):
    """This idempotency key was used before with other arguments. Use a new key for a new
    request.
    """

    code = "idempotency_mismatch"


class SettingsError(TallystickError):
    """Configuration is missing or contradicts itself. The message names the setting."""

    code = "settings_error"


class MissingExtra(TallystickError, ImportError):
    """An optional package is needed. Install the extra that the message names."""

    code = "missing_extra"
    _facts = ("package", "extra")

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed. Run: {install_line(extra)}")


class NotFound(TallystickError):
    """No such record in the scopes of this actor."""

    code = "not_found"


class Unreachable(TallystickError):
    """The server of a tally did not answer, or what answered is none of ours.

    Whether a change was made is not known: send it again with the same idempotency key.
    """

    code = "unreachable"


def install_line(extra: str) -> str:
    """Return the command that adds an extra to this environment, from where Tallystick was
    installed: a checkout, a wheel, or an index of packages.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    name = "tallystick"
    try:
        origin = json.loads(distribution(name).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    place = urlsplit(origin.get("url", ""))
    if place.scheme != "file":
        return f"pip install '{name}[{extra}]'"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{url2pathname(place.path)}[{extra}]'"


def require(package: str, *, extra: str) -> None:
    """Raise MissingExtra unless `package` is installed; the first line of every adapter."""
    with suppress(ModuleNotFoundError):
        if find_spec(package) is not None:
            return
    raise MissingExtra(package, extra)


def _plain(value: Any) -> Any:
    """Return a fact as JSON values."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


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
    if problem["type"] == "missing" and problem["loc"][-1:] == ("reason",):
        return f'{text}: say why, as in reason="…"'
    return text.removeprefix("Value error, ").removesuffix(".")


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
