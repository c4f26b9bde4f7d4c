"""Commands of whoever runs a tally for others: health, alerts, measures, repairs and timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallystick.errors import InvalidInput
from tallystick.records import Health, Repair
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.inputs import read_attributes
from tallystick_cli.session import id_of
from tallystick_cli.views import stewardship as views
from tallystick_steward.metrics import exposition


@command(
    *("health", "diagnose"),
    without=("domain",),
    helps={"domain": "queue, storage, index, provider or mutation_safety; by default all."},
)
def health(
    call: Call, domain: Annotated[str | None, "One part; by default all of them."] = None, /
) -> Answer:
    """Score the tally from 0 to 100, with the facts of what is not well. Exits with 1 below 50."""
    if domain is not None:
        part = call.do("diagnose", domain=domain)
        return Answer(part, views.domain_view(part), part.score >= views.POOR)
    judged: Health = call.do("health")
    return Answer(judged, views.health_view(judged), judged.score >= views.POOR)


alerts = operation_command("alerts", views.alert_table, empty="No alert stands.")


@command("metrics")
def metrics(
    call: Call, prometheus: Annotated[bool, "Print what Prometheus scrapes."] = False
) -> Answer | None:
    """Measure operations, jobs, calls of models and the database."""
    measured = call.do("metrics")
    if prometheus:
        typer.echo(exposition(measured).decode(), nl=False)
        return None
    return Answer(measured, views.measure_table(measured))


events = operation_command("events", views.event_table, empty="Nothing has happened.")


@command("timeline", positional=("subject",))
def timeline(
    call: Call, html: Annotated[str | None, "Write it as a page to this new file."] = None
) -> Answer | None:
    """List what happened to a memory, or in a request or session, with the decisions."""
    entries = call.do(subject=id_of(call.arguments["subject"]))
    if html is None:
        return Answer(entries, views.timeline_table(entries))
    if Path(html).exists():
        raise InvalidInput(f"{html} is there already. Name a new file.")
    Path(html).write_text(views.timeline_page(entries), encoding="utf-8")
    typer.echo(f"✓ {html}")
    return None


def _shown(repair: Repair) -> Answer:
    return Answer(repair, views.repair_view(repair))


@command("repair", positional=("action",))
def repair(call: Call) -> Answer:
    """Requeue jobs, release leases, embed, mend the index or purge: journaled before and after,
    within bounds.
    """
    return _shown(call.do())


@command("rollback", positional=("act",))
def rollback(call: Call) -> Answer:
    """Preview what one act changed, then undo it with the token."""
    return _shown(call.do())


@command("recover_many")
def take_back(call: Call) -> Answer:
    """Preview what a job, a model or a caller did since a moment, then take it back with the
    token.
    """
    return _shown(call.do())


backfill = operation_command("backfill", views.backfill_view, positional=("work",))


@command("resume_autonomy")
def resume_autonomy(call: Call) -> Answer:
    """Let the steward go on after repairs that did not help halted it."""
    call.do()
    return Answer({"resumed": True}, "✓ the steward goes on")


@command(
    "compare",
    positional=("action",),
    without=("candidate",),
    helps={"action": "report, start, promote or stop."},
)
def compare(
    call: Call,
    candidate: Annotated[tuple[str, ...], "With start: a setting, NAME=JSON or NAME=text."] = (),
) -> Answer:
    """Compare another configuration of recall with that of the settings, promote it, or stop."""
    compared = call.do(candidate=read_attributes(candidate, "--candidate") or None)
    nothing = "Nothing was compared."
    return Answer(compared, views.comparison_view(compared) if compared else nothing)


analytics = operation_command("analytics", views.analytics_table, positional=("analysis",))
