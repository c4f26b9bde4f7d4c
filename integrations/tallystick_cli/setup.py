"""The command that makes a tally: it asks once, at a terminal, what only a person can decide."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tallystick.errors import InvalidInput, SettingsError
from tallystick.records import Actor
from tallystick.settings import (
    HARMLESS,
    SETTINGS_FILE,
    Settings,
    folder_of,
    read_settings_file,
    settings_files,
    trust_file,
)
from tallystick.tally import Tally
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import print_view
from tallystick_cli.session import confirm, require_person

_RETENTION = """Runs are recorded with what the model saw and answered. redacted_payloads keeps it
without secrets, full_payloads as it was (needed to replay exactly), metadata_only keeps no text.
A preset chooses redaction with it: strict, team or full."""
PRESETS: Mapping[str, Mapping[str, str]] = {
    "strict": {
        "retention": "metadata_only",
        "redact_pii": "true",
        "secrets_in_memory": "refuse",
    },
    "team": {"retention": "redacted_payloads", "redact_pii": "false"},
    "full": {"retention": "full_payloads", "redact_pii": "false"},
}
"""Settings of redaction that go together, by the name that `tally init` takes."""
_JOURNAL = """The journal lists every change of memory and who made it. It can be kept for a
number of days (90 or 180 are usual), or for ever (`keep`)."""
_TOMBSTONES = """What is forgotten can be recovered for a while. After a number of days (30 are
usual) its text is destroyed by itself, or only when it is purged (`keep`)."""
_DONE_JOBS = "Follow-up work that is done is listed for a number of days, or for ever (`keep`)."
_DEAD_JOBS = "The same for what failed or died, so that somebody can look into it."
_TIME_ZONE = """A date without a time zone, such as 2026-03-01, is of this zone: UTC, `local` for
that of this machine, or a name such as Europe/Zurich."""
_QUESTIONS = {
    "tombstones_days": (_TOMBSTONES, "Forgotten text, days", "30"),
    "done_jobs_days": (_DONE_JOBS, "Finished jobs, days", "14"),
    "dead_jobs_days": (_DEAD_JOBS, "Failed jobs, days", "30"),
}
"""What is asked together where nobody has chosen how long forgotten text is kept."""


@command(
    "choose_windows",
    without=("idempotency_key",),
    helps={
        "retention": "What recorded steps keep: redacted_payloads, full_payloads or metadata_only; "
        f"written to {SETTINGS_FILE}.",
        "time_zone": "Zone of dates without one: UTC, local or a name such as Europe/Zurich; "
        f"written to {SETTINGS_FILE}.",
    },
    tally="place",
)
def init(
    call: Call,
    owner: Annotated[str, "Who acts where a runtime names nobody."] = "local",
    project: Annotated[tuple[str, ...], "A project of the owner."] = (),
    retention: str | None = None,
    redaction: Annotated[
        str | None, "A preset of what is redacted and kept: strict, team or full."
    ] = None,
    time_zone: str | None = None,
) -> Answer:
    """Make a tally: name its owner, choose what recorded runs keep and how long things are kept. At
    a terminal it asks.
    """
    days, before = call.arguments, Settings.read(call.where)
    # A database has no folder: its settings are those of the folder in which it is used.
    file = settings_files(folder_of(call.where))[0]
    written, _ = read_settings_file(file)
    if sys.stdin.isatty():
        if retention is None and redaction is None and "retention" not in written:
            retention = _ask(_RETENTION, "Retention", before.retention)
            if retention in PRESETS:
                redaction, retention = retention, None
        journal_chosen, tombstones_chosen = _chosen_windows(call.where)
        if "journal_days" not in days and not journal_chosen:
            days["journal_days"] = _ask(_JOURNAL, "Journal, days", "180")
        if "tombstones_days" not in days and not tombstones_chosen:
            for name, question in _QUESTIONS.items():
                days[name] = days.get(name) or _ask(*question)
        if time_zone is None and "time_zone" not in written:
            time_zone = _ask(_TIME_ZONE, "Time zone", before.time_zone)
    for name, text in days.items():
        if text != "keep" and not (text.isascii() and text.isdecimal()):
            option = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{option} takes a number of days, or keep.", argument=name)
    if redaction is not None and redaction not in PRESETS:
        raise InvalidInput(f"--redaction is one of {', '.join(PRESETS)}.", argument="redaction")
    preset = PRESETS.get(redaction or "", {})
    named = {**preset, "time_zone": time_zone}
    if retention is not None:
        named["retention"] = retention
    chosen = {name: value for name, value in named.items() if value is not None}
    settings = Settings.read(call.where, **chosen)
    added = _new_settings(file, written, chosen)
    person = Actor.load({"user": owner, "projects": set(project), "role": "operator"})
    actor = None if owner == "local" and not project else person
    with Tally.open(call.where, owner=actor, settings=settings, background=False) as tally:
        # On PostgreSQL a tally has no owner: whoever is named acts.
        call.bound = bound = tally.bind(person if tally.owner is None else None).on("cli")
        if days:
            call.do()
        window = bound.operator.purge(mode="preview")
        place, belongs = tally.location, None if tally.owner is None else bound.actor.user
    _write_settings(file, added)
    lines = [f"✓ {place} {'has no owner' if belongs is None else f'belongs to {belongs}'}"]
    if added:
        settings_lines = ", ".join(f'{name} = "{value}"' for name, value in added.items())
        lines.append(f"✓ written to {file.resolve()}: {settings_lines}")
    if not window.journal_window_chosen:
        lines.append("! The journal is kept until you choose: tally init --journal-days 180")
    who = "" if belongs is not None else " --as USER"
    lines.append(f'Next: tally{who} remember "We indent with tabs."')
    windows = ("journal", "tombstones")
    days_kept = {f"{name}_days": getattr(window, f"{name}_window_days") for name in windows}
    chosen_by = {f"{name}_chosen": getattr(window, f"{name}_window_chosen") for name in windows}
    settings_chosen = {"retention": settings.retention, "time_zone": settings.time_zone}
    where = str(file.resolve()) if added else None
    value = {"place": place, "owner": belongs, **days_kept, **chosen_by, **settings_chosen}
    return Answer({**value, "written": added, "file": where}, lines)


def _chosen_windows(where: str) -> tuple[bool, bool]:
    """Return whether somebody has chosen how long journals and forgotten text are kept there."""
    if folder_of(where) is None or Path(where).exists():
        with Tally.open(where, background=False) as tally:
            if tally.owner is not None:
                purge = tally.bind(None).on("cli").operator.purge(mode="preview")
                return purge.journal_window_chosen, purge.tombstones_window_chosen
    return False, False


def _ask(explanation: str, question: str, default: str) -> str:
    """Return a person's answer to a question that is explained first."""
    print_view(" ".join(explanation.split()), style="dim", stderr=True)
    return str(typer.prompt(question, default, err=True)).strip()


def _new_settings(
    file: Path, written: Mapping[str, Any], chosen: Mapping[str, str]
) -> dict[str, str]:
    """Return settings that the file lacks. Raises SettingsError where it has another value."""
    for name, value in chosen.items():
        if name in written and written[name] != value:
            raise SettingsError(
                f"{file.resolve()} already has {name} = {written[name]!r}. Change it there."
            )
    return {name: value for name, value in chosen.items() if name not in written}


def _write_settings(file: Path, added: Mapping[str, str]) -> None:
    """Write settings before the first line of the file, so that they belong to no table of it."""
    if added:
        lines = "".join(f'{name} = "{value}"\n' for name, value in added.items())
        before = file.read_text(encoding="utf-8-sig") if file.exists() else ""
        file.write_text(lines + before, encoding="utf-8")
        if file == Path(SETTINGS_FILE):  # a person wrote it just now
            trust_file(file, file.read_bytes())


@command(tally="none")
def trust(call: Call, file: Annotated[str, "The file."] = SETTINGS_FILE, /) -> Answer:
    """Trust a settings file as it is now, so that it counts whole for processes beside it. Shows
    what only a trusted one may set; needs a person at a terminal.
    """
    path = Path(file)
    if not path.is_file():
        raise InvalidInput(f"There is no file {path.resolve()}.", argument="file")
    written, content = read_settings_file(path)
    unsure = {name: value for name, value in written.items() if name not in HARMLESS}
    for name in unsure:
        print_view(f"{name} = {unsure[name]!r}", stderr=True)
    require_person("tally trust")
    confirm("let whoever wrote this decide where memories go and how long they are kept", "trust")
    place, digest = str(path.resolve()), trust_file(path, content)
    value = {"file": place, "digest": digest, "settings": sorted(unsure)}
    return Answer(value, f"✓ {place} is trusted as it is now")
