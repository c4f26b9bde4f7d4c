"""Commands of whoever runs a tally for others: health, alerts, measures, repairs and timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.inputs import read_attributes
from tallystick_cli.output import html_of
from tallystick_cli.session import id_of
from tallystick_cli.views import stewardship as views
from tallystick_steward.metrics import exposition


@command(
    *("health", "diagnose"),
    without=("domain",),
    helps={"domain": "queue, storage, index, provider or mutation_safety; by default all."},
    view=views.health_view,
    ok=lambda judged: judged.score >= views.POOR,
)
def health(
    call: Call, domain: Annotated[str | None, "One part; by default all of them."] = None, /
) -> Answer:
    """Score the tally from 0 to 100, with the facts of what is not well. Exits with 1 below 50."""
    if domain is not None:
        part = call.do("diagnose", domain=domain)
        return Answer(part, views.domain_view(part))
    return Answer(call.do("health"))


alerts = operation_command("alerts", views.alert_table, empty="No alert stands.")


@command("metrics", view=views.measure_table)
def metrics(
    call: Call, prometheus: Annotated[bool, "Print what Prometheus scrapes."] = False
) -> Any:
    measured = call.do()
    if not prometheus:
        return measured
    return typer.echo(exposition(measured).decode(), nl=False)


events = operation_command("events", views.event_table, empty="Nothing has happened.")


@command("timeline", view=views.timeline_table, positional=("subject",))
def timeline(
    call: Call, html: Annotated[str | None, "Write it as a page to this new file."] = None
) -> Any:
    entries = call.do(subject=id_of(call.arguments["subject"]))
    if html is None:
        return entries
    with Path(html).open("x", encoding="utf-8") as file:
        file.write(html_of(views.timeline_table(entries)))
    return Answer(entries, f"✓ {html}")


repair = operation_command("repair", views.repair_view, positional=("action",))
rollback = operation_command("rollback", views.repair_view, positional=("act",))
take_back = operation_command("recover_many", views.repair_view)
backfill = operation_command("backfill", views.backfill_view, positional=("work",))


resume_autonomy = operation_command("resume_autonomy", "✓ the steward goes on")


@command(
    "compare",
    view=lambda compared: views.comparison_view(compared) if compared else "Nothing was compared.",
    positional=("action",),
    without=("candidate",),
    helps={"action": "report, start, promote or stop."},
)
def compare(
    call: Call,
    candidate: Annotated[tuple[str, ...], "With start: a setting, NAME=JSON or NAME=text."] = (),
) -> Answer:
    return Answer(call.do(candidate=read_attributes(candidate, "--candidate") or None))


analytics = operation_command("analytics", views.analytics_table, positional=("analysis",))
