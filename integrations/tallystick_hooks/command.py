"""The command of a hook: JSON on standard input, the answer on standard output, an exit code.

Where a server is warm, its socket answers, and the core is not imported; nor is it for an event
that only tells, which waits in the spool for the next process that opens the tally. Exit codes: 0,
go on; 2, the tool does not run. With rules, those of a file or of a server, an event before a tool
ends with 2 whenever it cannot be answered; every other event ends with 0 then. Both have a line on
standard error and a gap in the record, where the tally can be written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, get_args

from tallystick_hooks.events import EVENTS, PATHS, Answer, Event, HookFormat
from tallystick_hooks.formats import BadPayload, answer_in, event_from
from tallystick_hooks.quick import (
    DECIDING,
    RULES_MARK,
    Unanswered,
    ask,
    code_of_misuse,
    finish,
    is_closed,
    read_input,
)
from tallystick_hooks.quick import answer as quick_answer
from tallystick_hooks.taking import leave_event


def run(
    arguments: Sequence[str] | None = None, text: str | None = None, refusal: str | None = None
) -> int:
    """Answer one event; return the exit code. With `text` standard input was read already, and no
    server answered; `refusal` says why one that is there did not.
    """
    chosen = _parser().parse_args(arguments)
    is_shut = is_closed(chosen.event, _socket_of(chosen), chosen.rules)
    is_known = False
    try:
        if refusal is not None:
            raise Unanswered(refusal)
        answer = _answer(chosen, text)
        is_known = True
    except Unanswered as error:
        is_known = True
        print(f"tally hook {chosen.event}: {error}", file=sys.stderr)  # noqa: T201
        if is_shut:
            print("The rules could not be checked, so the tool does not run.", file=sys.stderr)  # noqa: T201
        _note_gap(chosen, error)
        return 2 if is_shut else 0
    finally:
        if is_shut and not is_known:
            # A client takes every other code for a hook that has nothing to say.
            raise SystemExit(2)
    return finish(answer, chosen.format, chosen.event)


def main() -> NoReturn:
    """Answer one event and exit."""
    code = quick_answer(sys.argv[1:], run)
    sys.exit(run() if code is None else code)


class _Parser(argparse.ArgumentParser):
    """Ends a hook with options that are none so that the client goes on, but before a tool under
    rules.
    """

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(code_of_misuse(sys.argv[1:]), f"tally hook: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tally hook", description="Answer one event of an agent's session.")
    parser.add_argument("event", choices=EVENTS)
    parser.add_argument("--format", choices=get_args(HookFormat), default="neutral")
    parser.add_argument("--via", choices=PATHS, help="Where the hook is written down.")
    parser.add_argument(
        "--tally", "-t", default=os.environ.get("TALLYSTICK_TALLY", ".tally"), metavar="FOLDER"
    )
    parser.add_argument("--boundary", help="Scope to work in; by default your private one.")
    parser.add_argument("--agent", help="The agent that acts for you, for the history.")
    parser.add_argument("--rules", metavar="FILE", help="TOML file of the rules over tools.")
    parser.add_argument(
        "--socket", metavar="PATH", help="Socket of `tally serve`; else that of the tally."
    )
    return parser


def _answer(chosen: argparse.Namespace, text: str | None) -> dict[str, Any]:
    try:
        payload = json.loads(read_input() if text is None else text)
    except (ValueError, RecursionError):
        raise Unanswered("Standard input is no JSON.") from None
    # A server has rules of its own: those of a file are checked here.
    if text is None and (chosen.rules is None or chosen.event not in DECIDING):
        answered = _over_socket(chosen, payload)
        if answered is not None:
            return answered
    if chosen.rules is None and is_closed(chosen.event, _socket_of(chosen), None):
        mark = _socket_of(chosen) + RULES_MARK
        raise Unanswered(
            f"The server with the rules does not run. Start it, or remove {mark} to go on without."
        )
    format: HookFormat = chosen.format
    try:
        event = event_from(payload, chosen.event, format, chosen.via)
    except (BadPayload, OSError) as error:
        raise Unanswered(str(error)) from error
    if event.name in DECIDING and chosen.rules is None:
        # Only rules decide over a tool, and nobody has any.
        return answer_in(Answer(), event, format)
    left = leave_event(chosen.tally, event, boundary=chosen.boundary, agent=chosen.agent)
    if left is not None:
        return answer_in(Answer(facts={"spooled": left}), event, format)
    return _direct(chosen, event)


def _socket_of(chosen: argparse.Namespace) -> str:
    return str(chosen.socket or os.path.join(chosen.tally, "serve.sock"))


def _over_socket(chosen: argparse.Namespace, payload: Any) -> dict[str, Any] | None:
    """Return the answer of a server, or None where there is none. Raises Unanswered."""
    path = _socket_of(chosen)
    if not os.path.exists(path):
        return None
    return ask(path, payload, **vars(chosen))


def _direct(chosen: argparse.Namespace, event: Event) -> dict[str, Any]:
    """Return the answer of the tally itself. Raises Unanswered."""
    from tallystick.loading import loading

    with loading():
        from tallystick.errors import TallystickError
        from tallystick.policy.rules import load_rules
        from tallystick_hooks.handling import answer_event

    try:
        rules = () if chosen.rules is None else load_rules(chosen.rules)
        with _opened(chosen.tally, rules) as tally:
            answer = answer_event(tally, event, boundary=chosen.boundary, agent=chosen.agent)
    except (TallystickError, OSError, ValueError) as error:
        raise Unanswered(str(error)) from error
    if answer.error is not None:
        print(f"tally hook {chosen.event}: {answer.error}", file=sys.stderr)  # noqa: T201
    return answer_in(answer, event, chosen.format)


def _opened(where: str, rules: Any) -> Any:
    """Open the tally; one that is made is told of. Raises TallystickError."""
    from tallystick.errors import TallyNotFound
    from tallystick.tally import Tally

    try:
        return Tally.open(where, create=False, background=False, rules=rules)
    except TallyNotFound:
        tally = Tally.open(where, background=False, rules=rules)
        print(f"tally hook: a new tally: {tally.location}", file=sys.stderr)  # noqa: T201
        return tally


def _note_gap(chosen: argparse.Namespace, error: Exception) -> None:
    """Record that an event was not answered, where the tally can be written."""
    from tallystick.errors import TallystickError
    from tallystick.tally import Tally
    from tallystick_hooks.handling import note_failure

    # What failed may be the tally itself.
    with (
        suppress(TallystickError, OSError, ValueError),
        Tally.open(chosen.tally, create=False, background=False) as tally,
    ):
        bound = tally.bind(tally.bind().actor, chosen.boundary)
        note_failure(bound, chosen.event, error, agent=chosen.agent or "agent")


if __name__ == "__main__":
    main()
