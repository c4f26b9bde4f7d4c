"""Arguments of the pieces of adapters, checked when a piece is made: what is wrong raises
InvalidInput with the line to write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import iscoroutinefunction
from pathlib import PurePath
from typing import Any, Final, TypeVar, get_args

from tallystick.errors import InvalidInput, InvalidScope
from tallystick.kit.elsewhere import TallyElsewhere
from tallystick.recorder import Player
from tallystick.records import Actor, CompileConfig, PolicyRule, Scope
from tallystick.storage.engine.location import in_schema as in_schema
from tallystick.storage.engine.location import shown_place as shown_place
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of

T = TypeVar("T")
_LONGEST = 60
"""Most characters of a value that an error repeats."""


def describe_value(value: Any) -> str:
    """Return a short description of a value for an error: the value itself if it is a short text or
    a number, else its type. The address of a server is never repeated: it may hold a password.
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str) and len(value) <= _LONGEST and "://" not in value:
        return repr(value)
    return f"a {type(value).__name__}"


def check_tally(tally: object, usage: str) -> None:
    """Raise InvalidInput unless `tally` is a tally or a view of one. `usage` is the line to write,
    with `{}` in place of the tally.
    """
    if isinstance(tally, Tally | BoundTally):
        return
    if isinstance(tally, TallyElsewhere):
        raise InvalidInput(
            f"{usage.partition('(')[0]} works in the process that opened the tally, and not on one "
            "behind a server. Memory tools, TallyRetriever and TallyStore work there too; what "
            "happens here is recorded there by `remote.run`."
        )
    place = "'.tally'"
    if isinstance(tally, str | PurePath):
        text = str(tally)
        if "://" in text:
            place = f"'{text.partition('://')[0]}://…'"
        elif len(text) <= _LONGEST:
            place = repr(text)
    piece = usage.partition("(")[0]
    line = usage.format(f"Tally.open({place})")
    raise InvalidInput(f"{piece} takes a tally, not {describe_value(tally)}: {line}.")


def check_actor(actor: object, piece: str) -> None:
    """Raise InvalidInput unless `actor` is None, an Actor, or a plain function."""
    if actor is None or isinstance(actor, Actor):
        return
    if callable(actor) and not isinstance(actor, type):
        if iscoroutinefunction(actor) or iscoroutinefunction(type(actor).__call__):
            raise InvalidInput(
                f"The `actor` of {piece} is an async function. Write a plain one, which reads the "
                f"user from the call that it is given.",
                argument="actor",
            )
        return
    raise InvalidInput(
        f"The `actor` of {piece} is {describe_value(actor)}. Write actor={_actor_line(actor)}, or "
        f"a function from the call to an Actor.",
        argument="actor",
    )


def check_scope(scope: object) -> None:
    """Raise InvalidScope unless `scope` is None, a Scope or the text of one."""
    if scope is None or isinstance(scope, Scope):
        return
    if not isinstance(scope, str):
        raise InvalidScope(
            f"The `scope` is {describe_value(scope)}. Write it like scope='project:apollo'."
        )
    try:
        Scope.parse(scope)
    except InvalidScope as error:
        if not scope.isidentifier():
            raise
        raise InvalidScope(f"{error} For the project {scope}: scope='project:{scope}'.") from error


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Raise InvalidInput unless `value` is an integer of at least `least`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return
    example = _plain_number(value)
    line = f" Write {name}={example}." if example is not None and example >= least else ""
    raise InvalidInput(
        f"`{name}` has to be an integer of at least {least}, not {describe_value(value)}.{line}"
    )


def check_flag(name: str, value: object) -> None:
    """Raise InvalidInput unless `value` is True or False."""
    if not isinstance(value, bool):
        raise InvalidInput(f"`{name}` has to be True or False, not {describe_value(value)}.")


def check_embedder(
    tally: Tally | TallyElsewhere, *, embed: object = None, dims: object = None
) -> None:
    """Raise InvalidInput unless an embedder and a number of dimensions are those of a tally."""
    if isinstance(tally, TallyElsewhere):
        if embed is not None or dims is not None:
            raise InvalidInput(
                "The embedder is that of the server's tally. Leave out index['embed'] and "
                "index['dims']."
            )
        return
    embedder = services_of(tally).embedder
    if embed is not None and not embedder.is_made_of(embed):
        raise InvalidInput(
            f"index['embed'] is {describe_value(embed)}, and not the embedder of this tally. Leave "
            f"it out, and write Tally.open(…, embedder=…), which embeds everything."
        )
    if dims is not None and dims != embedder.dimension:
        raise InvalidInput(
            f"index['dims'] is {describe_value(dims)}, and the embedder of this tally makes "
            f"{embedder.dimension} dimensions. Leave it out, and write Tally.open(…, embedder=…)."
        )


def check_word(name: str, value: object, words: Any) -> None:
    """Raise InvalidInput unless `value` is among the words of a Literal."""
    known_words = get_args(words)
    if not isinstance(value, str) or value not in known_words:
        choices = " or ".join(map(repr, known_words))
        raise InvalidInput(f"`{name}` has to be {choices}, not {describe_value(value)}.")


def check_names(name: str, value: object) -> None:
    """Raise InvalidInput unless `value` is None or a sequence of texts; one text is none."""
    if isinstance(value, str):
        raise InvalidInput(
            f"`{name}` is one text where a sequence is meant. Write {name}=[{value!r}]."
        )
    if value is not None and not (
        isinstance(value, Sequence) and all(isinstance(item, str) for item in value)
    ):
        raise InvalidInput(f"`{name}` has to be a sequence of texts, not {describe_value(value)}.")


def check_config(name: str, value: object) -> None:
    """Raise InvalidInput unless `value` is None or a configuration of the compiler."""
    if value is not None and not isinstance(value, CompileConfig):
        raise InvalidInput(
            f"`{name}` has to be a CompileConfig, not {describe_value(value)}. Write "
            f"{name}=CompileConfig(…)."
        )


def check_rules(rules: object) -> None:
    """Raise InvalidInput unless `rules` is a sequence of policy rules."""
    if not isinstance(rules, Sequence) or not all(isinstance(rule, PolicyRule) for rule in rules):
        raise InvalidInput(
            f"`rules` has to be a sequence of PolicyRule, not {describe_value(rules)}. Write "
            f"rules=[PolicyRule(…)]."
        )


def check_model(model: object, kind: type[Any], line: str) -> None:
    """Raise InvalidInput unless `model` is a model of a runtime. `line` is what to write, with `{}`
    in place of the name of a model.
    """
    if not isinstance(model, kind):
        name = repr(model) if isinstance(model, str) and len(model) <= _LONGEST else "'…'"
        raise InvalidInput(
            f"A model is meant, not {describe_value(model)}. Write {line.format(name)}."
        )


def check_player(player: object, piece: str, more: str = "") -> None:
    """Raise InvalidInput unless `player` plays the tape of a run. `more` are the other arguments of
    the line to write.
    """
    if not isinstance(player, Player):
        raise InvalidInput(
            f"{piece} takes the player of a recorded run, not {describe_value(player)}: "
            f"{piece}(bound.recordings.player(run_id){more})."
        )


_UNITS: Final[Mapping[str, int]] = {"k": 1_000, "m": 1_000_000}


def _plain_number(value: object) -> int | None:
    """Return the number that a text such as `8k` or `8_000` can only mean, or None."""
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    factor = _UNITS.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    digits = digits.replace(",", "").replace("_", "")
    return int(digits) * factor if digits.isdecimal() and len(digits) < 10 else None


def _actor_line(actor: object) -> str:
    """Return the code of the Actor that a wrong value can only mean."""
    if isinstance(actor, Mapping):
        actor = actor.get("user")
    if isinstance(actor, int) and not isinstance(actor, bool):
        actor = str(actor)
    if isinstance(actor, str) and actor and len(actor) <= _LONGEST:
        return f"Actor(user={actor!r})"
    return "Actor(user=…)"


def does_nothing(argument: str, part: str) -> InvalidInput:
    """Return the error for an argument of a part that is switched off."""
    return InvalidInput(
        f"`{argument}` does nothing with {part}=False. Leave one of the two out.",
        argument=argument,
    )


def refuse_unused(switches: Mapping[str, bool], **arguments: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an argument of a part that is switched off: those of each part by
    name, each true if it was given.
    """
    for part, values in arguments.items():
        unused = [name for name, is_given in values.items() if is_given]
        if unused and not switches[part]:
            raise does_nothing(unused[0], part)
