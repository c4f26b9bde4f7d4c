"""The command of a hook: JSON on standard input, the answer on standard output, an exit code.

Where a server is warm, its socket answers, and the core is not imported. Exit codes: 0, go on; 2,
the tool does not run. With rules, an event before a tool ends with 2 whenever it cannot be
answered; every other event ends with 0 then, with a line on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tallystick_hooks.events import EVENTS, HookFormat
from tallystick_hooks.formats import BadPayload, answer_in, event_from
from tallystick_hooks.quick import Unanswered, ask, finish
from tallystick_hooks.quick import answer as quick_answer

__all__ = ["main", "run"]


def run(arguments: Sequence[str] | None = None, text: str | None = None) -> int:
    """Answer one event; return the exit code. With `text` standard input was read already, and no
    server answered.
    """
    chosen = _parser().parse_args(arguments)
    is_closed = chosen.event == "before-tool" and chosen.rules is not None
    is_known = False
    try:
        answer = _answer(chosen, text)
        is_known = True
    except Unanswered as error:
        is_known = True
        print(f"tally hook {chosen.event}: {error}", file=sys.stderr)  # noqa: T201
        if is_closed:
            print("The rules could not be checked, so the tool does not run.", file=sys.stderr)  # noqa: T201
        return 2 if is_closed else 0
    finally:
        if is_closed and not is_known:
            # A client takes every other code for a hook that has nothing to say.
            raise SystemExit(2)
    return finish(answer, chosen.format)


def main() -> NoReturn:
    """Answer one event and exit."""
    code = quick_answer(sys.argv[1:], run)
    sys.exit(run() if code is None else code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tally hook", description="Answer one event of an agent's session."
    )
    parser.add_argument("event", choices=EVENTS)
    parser.add_argument("--format", choices=["neutral", "claude-code"], default="neutral")
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
        payload = json.loads(sys.stdin.read() if text is None else text)
    except (ValueError, RecursionError):
        raise Unanswered("Standard input is no JSON.") from None
    # A server has rules of its own: those of a file are checked here.
    if text is None and (chosen.rules is None or chosen.event != "before-tool"):
        answered = _over_socket(chosen, payload)
        if answered is not None:
            return answered
    return _direct(chosen, payload)


def _over_socket(chosen: argparse.Namespace, payload: Any) -> dict[str, Any] | None:
    """Return the answer of a server, or None where there is none. Raises Unanswered."""
    path = chosen.socket or os.path.join(chosen.tally, "serve.sock")
    if not os.path.exists(path):
        return None
    return ask(path, payload, **vars(chosen))


def _direct(chosen: argparse.Namespace, payload: Any) -> dict[str, Any]:
    """Return the answer of the tally itself. Raises Unanswered."""
    from tallystick.errors import TallystickError
    from tallystick.policy.rules import load_rules
    from tallystick.tally import Tally
    from tallystick_hooks.handling import react

    format: HookFormat = chosen.format
    try:
        event = event_from(payload, chosen.event, format)
        rules = () if chosen.rules is None else load_rules(chosen.rules)
        with Tally.open(chosen.tally, create=False, background=False, rules=rules) as tally:
            actor = tally.bind().actor
            if chosen.agent is not None:
                actor = actor.replace(agent=chosen.agent)
            answer = react(tally.bind(actor, chosen.boundary), event)
    except (TallystickError, BadPayload, OSError, ValueError) as error:
        raise Unanswered(str(error)) from error
    if answer.error is not None:
        print(f"tally hook {chosen.event}: {answer.error}", file=sys.stderr)  # noqa: T201
    return answer_in(answer, event, format)


if __name__ == "__main__":
    main()
