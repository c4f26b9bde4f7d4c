"""The command that makes a tally: it asks once, at a terminal, what only a person can decide."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from tallystick.errors import InvalidInput, SettingsError
from tallystick.records import Actor
from tallystick.settings import SETTINGS_FILE, Settings
from tallystick.tally import BoundTally, Tally
from tallystick.upkeep.retention import KEEP, Window
from tallystick_cli.options import AsJson, Where
from tallystick_cli.output import print_json, print_view
from tallystick_cli.terminal import Terminal

_RETENTION = (
    "Runs are recorded with what the model saw and answered. redacted_payloads keeps it without "
    "secrets, full_payloads as it was (needed to replay exactly), metadata_only keeps no text."
)
_JOURNAL = (
    "The journal lists every change of memory and who made it. It can be kept for a number of "
    "days (90 or 180 are usual), or for ever (`keep`)."
)
_TOMBSTONES = (
    "What is forgotten can be recovered for a while. After a number of days (30 are usual) its "
    "text is destroyed by itself, or only when it is purged (`keep`)."
)
_DONE_JOBS = "Follow-up work that is done is listed for a number of days, or for ever (`keep`)."
_DEAD_JOBS = "The same for what failed or died, so that somebody can look into it."
_TIME_ZONE = (
    "A date without a time zone, such as 2026-03-01, is of this zone: UTC, `local` for that of "
    "this machine, or a name such as Europe/Zurich."
)


def init(
    where: Where = ".tally",
    owner: Annotated[
        str, typer.Option("--owner", help="Who acts where a runtime names nobody.")
    ] = "local",
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project of the owner; repeatable.")
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            "--retention",
            help="What recorded steps keep: redacted_payloads, full_payloads or metadata_only; "
            f"written to {SETTINGS_FILE}.",
        ),
    ] = None,
    journal_days: Annotated[
        str | None,
        typer.Option(
            "--journal-days", help="Days that journals are kept (90 or 180 are usual), or `keep`."
        ),
    ] = None,
    tombstones_days: Annotated[
        str | None,
        typer.Option(
            "--tombstones-days",
            help="Days after which forgotten text is destroyed by itself (30 are usual), or "
            "`keep`.",
        ),
    ] = None,
    done_jobs_days: Annotated[
        str | None,
        typer.Option("--done-jobs-days", help="Days that finished jobs are kept, or `keep`."),
    ] = None,
    dead_jobs_days: Annotated[
        str | None,
        typer.Option("--dead-jobs-days", help="The same for jobs that failed or died."),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(
            "--time-zone",
            help="Zone of dates without one: UTC, local or a name such as Europe/Zurich; written "
            f"to {SETTINGS_FILE}.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a tally: name its owner, choose what recorded runs keep and how long things are kept. At
    a terminal it asks.
    """
    file = Path(SETTINGS_FILE)
    written = _read_file(file)
    if sys.stdin.isatty():
        if retention is None and "retention" not in written:
            retention = _asked(_RETENTION, "Retention", Settings.read().retention)
        before = _windows_of(where)
        if journal_days is None and not before.journal:
            journal_days = _asked(_JOURNAL, "Journal, days", "180")
        if tombstones_days is None and not before.tombstones:
            tombstones_days = _asked(_TOMBSTONES, "Forgotten text, days", "30")
            done_jobs_days = done_jobs_days or _asked(_DONE_JOBS, "Finished jobs, days", "14")
            dead_jobs_days = dead_jobs_days or _asked(_DEAD_JOBS, "Failed jobs, days", "30")
        if time_zone is None and "time_zone" not in written:
            time_zone = _asked(_TIME_ZONE, "Time zone", Settings.read().time_zone)
    named = {"retention": retention, "time_zone": time_zone}
    chosen = {name: value for name, value in named.items() if value is not None}
    days: dict[str, Window | None] = {
        "journal_days": _days("--journal-days", journal_days),
        "tombstones_days": _days("--tombstones-days", tombstones_days),
        "done_jobs_days": _days("--done-jobs-days", done_jobs_days),
        "dead_jobs_days": _days("--dead-jobs-days", dead_jobs_days),
    }
    settings = Settings.read(**chosen)
    added = _to_be_added(file, written, chosen)
    actor = None
    if owner != "local" or project:
        actor = Actor.load(
            {"user": owner, "projects": frozenset(project or ()), "role": "operator"}
        )
    with Tally.open(where, owner=actor, settings=settings, background=False) as tally:
        bound = _as_owner(tally, actor or Actor(user=owner, role="operator"))
        if any(days.values()):
            bound.operator.choose_windows(
                journal_days=days["journal_days"],
                tombstones_days=days["tombstones_days"],
                done_jobs_days=days["done_jobs_days"],
                dead_jobs_days=days["dead_jobs_days"],
            )
        window = bound.operator.purge(mode="preview")
        summary: dict[str, Any] = {
            "place": tally.location,
            "owner": None if tally.owner is None else bound.actor.user,
            "journal_days": window.journal_window_days,
            "journal_chosen": window.journal_window_chosen,
            "tombstones_days": window.tombstones_window_days,
            "tombstones_chosen": window.tombstones_window_chosen,
            "retention": settings.retention,
            "time_zone": settings.time_zone,
            "written": added,
            "file": str(file.resolve()) if added else None,
        }
    _add_to_file(file, added)
    if as_json:
        print_json(summary)
        return
    whose = "has no owner" if summary["owner"] is None else f"belongs to {summary['owner']}"
    print_view(Text(f"✓ {summary['place']} {whose}", style="green"))
    if added:
        lines = ", ".join(f'{name} = "{value}"' for name, value in added.items())
        print_view(Text(f"✓ written to {file.resolve()}: {lines}", style="green"))
    if not window.journal_window_chosen:
        print_view(
            Text(
                "! The journal is kept until you choose: tally init --journal-days 180",
                style="yellow",
            )
        )
    who = "" if summary["owner"] is not None else " --as USER"
    print_view(Text(f'Next: tally{who} remember "We indent with tabs."', style="dim"))


def _as_owner(tally: Tally, named: Actor) -> BoundTally:
    """Return the view of the owner; of who is named where there is none, as on PostgreSQL."""
    return tally.bind(named if tally.owner is None else None).on("cli")


class _Chosen(NamedTuple):
    """The windows that somebody has chosen."""

    journal: bool = False
    tombstones: bool = False


def _windows_of(where: str) -> _Chosen:
    """Return which windows somebody has chosen for the tally, if there is one."""
    if "://" not in where and not Path(where).exists():
        return _Chosen()
    with Tally.open(where, background=False) as tally:
        if tally.owner is None:
            return _Chosen()
        purge = tally.bind(None).on("cli").operator.purge(mode="preview")
        return _Chosen(purge.journal_window_chosen, purge.tombstones_window_chosen)


def _asked(explanation: str, question: str, default: str) -> str:
    """Return a person's answer to a question that is explained first."""
    Terminal(stderr=True).print(Text(explanation, style="dim"))
    return str(typer.prompt(question, default, err=True)).strip()


def _days(option: str, days: str | None) -> Window | None:
    if days is None or days == KEEP:
        return None if days is None else KEEP
    if not (days.isascii() and days.isdecimal()):
        raise InvalidInput(f"{option} takes a number of days, or keep.")
    return int(days)


def _read_file(file: Path) -> Mapping[str, Any]:
    """Return the settings file's contents; nothing if there is none. Raises SettingsError."""
    Settings.read()
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _to_be_added(
    file: Path, written: Mapping[str, Any], chosen: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings that the file does not have yet. Raises SettingsError where it has
    another value: what a person wrote is never overwritten.
    """
    for name, value in chosen.items():
        if name in written and written[name] != value:
            raise SettingsError(
                f"{file.resolve()} already has {name} = {written[name]!r}. Change it there."
            )
    return {name: value for name, value in chosen.items() if name not in written}


def _add_to_file(file: Path, added: Mapping[str, str]) -> None:
    """Write settings before the first line of the file, so that they belong to no table of it."""
    if added:
        lines = "".join(f'{name} = "{value}"\n' for name, value in added.items())
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(lines + before, encoding="utf-8")


COMMANDS: Mapping[str, Callable[..., None]] = {"init": init}
