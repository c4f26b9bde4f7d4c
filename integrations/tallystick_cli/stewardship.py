"""Commands of whoever runs a tally for others: health, alerts, measures, repairs and timelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.inputs import read_attributes
from tallystick_cli.output import html_of
from tallystick_cli.session import id_of
from tallystick_cli.views.common import facts, one_line, panel, record, report, rows, table
from tallystick_steward.metrics import exposition

POOR, _WELL = 50, 90

alert_table = rows("name text since=at", "Alerts")
event_table = rows("cursor kind event subject_id scope when=at")
timeline_table = rows(
    "when=at event actor surface subject_id by reason facts",
    by=lambda each: "itself" if each.automatic else "",
)
repair_view = record(
    "{0.action}",
    "action state target changed facts",
    before=lambda each: min(each.before.values(), default=None),
    after=lambda each: min(each.after.values(), default=None),
    act=lambda each: each.correlation_id,
)
analytics_table = rows(
    "of count",
    of=lambda each: _values(each.labels),
    facts=lambda each: ", ".join(f"{name} {value:.5g}" for name, value in each.facts.items()),
)


def _score(score: int) -> Text:
    style = "green" if score >= _WELL else "yellow" if score >= POOR else "red"
    return Text(str(score), style=style)


def _lost(domain: records.DomainHealth) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {domain.facts.get(name)} (-{points})"
        for name, points in domain.losses.items()
    )


def _values(labels: Mapping[str, str]) -> str:
    return ", ".join(filter(None, labels.values()))


def health_view(health: records.Health) -> RenderableType:
    """Return the scores by part, with what took points off."""
    parts = table(
        health.domains,
        "domain",
        f"Health {health.score}",
        score=lambda each: _score(each.score),
        because=_lost,
    )
    return panel("health", parts, *([alert_table(health.alerts)] if health.alerts else []))


def domain_view(domain: records.DomainHealth) -> RenderableType:
    """Return one part with all of its facts."""
    known = {name: partial(_fact, name) for name in domain.facts}
    view = record("{0.domain}", "domain", score=lambda each: _score(each.score), **known)
    return view(domain)


def _fact(name: str, domain: records.DomainHealth) -> str:
    return one_line(domain.facts[name])


def comparison_view(compared: records.Comparison) -> RenderableType:
    """Return how far a comparison came, and its runs, the one under way last; times are means of a
    question.
    """

    def mean(micros: int, run: records.ComparedRun) -> str:
        return f"{micros / 1_000 / max(1, run.questions):.1f}"

    shown = facts(
        compared,
        "skipped wrong=reasons because=breach",
        candidate=lambda each: ", ".join(sorted(each.candidate)),
        sample=lambda each: f"{each.sample_percent} %",
        green=lambda each: f"{each.green} runs in a row",
    )
    runs = table(
        [*compared.runs, compared.run],
        "questions wrong same_best shared",
        "Runs",
        verdict=lambda run: "" if not run.questions else "green" if run.is_green else "red",
        settings_ms=lambda run: mean(run.old_us, run),
        candidate_ms=lambda run: mean(run.new_us, run),
    )
    return panel(f"comparison {compared.state}", shown, runs)


def measure_table(measures: Iterable[records.Measure]) -> Table:
    """Return measures, one sample in a row."""
    return table(
        [(each.name, sample) for each in measures for sample in each.samples],
        "",
        measure=lambda row: row[0].removeprefix("tallystick_"),
        of=lambda row: _values(row[1].labels),
        value=lambda row: f"{row[1].value:.6g}",
    )


def backfill_view(portion: records.Backfill) -> RenderableType:
    """Return a portion of work on what was there before."""
    shown = facts(portion, "work mode scope total portion enqueued tokens cost")
    return panel("backfill", shown, *([report("nothing is left")] if portion.is_over else []))


@command(
    *("health", "diagnose"),
    without=("domain",),
    helps={"domain": "queue, storage, index, provider or mutation_safety; by default all."},
    view=health_view,
    ok=lambda judged: judged.score >= POOR,
)
def health(
    call: Call, domain: Annotated[str | None, "One part; by default all of them."] = None, /
) -> Answer:
    """Score the tally from 0 to 100, with the facts of what is not well. Exits with 1 below 50."""
    if domain is not None:
        part = call.do("diagnose", domain=domain)
        return Answer(part, domain_view(part))
    return Answer(call.do("health"))


alerts = operation_command("alerts", alert_table, empty="No alert stands.")


@command("metrics", view=measure_table)
def metrics(
    call: Call, prometheus: Annotated[bool, "Print what Prometheus scrapes."] = False
) -> Any:
    measured = call.do()
    if not prometheus:
        return measured
    return typer.echo(exposition(measured).decode(), nl=False)


events = operation_command("events", event_table, empty="Nothing has happened.")


@command("timeline", view=timeline_table, positional=("subject",))
def timeline(
    call: Call, html: Annotated[str | None, "Write it as a page to this new file."] = None
) -> Any:
    entries = call.do(subject=id_of(call.arguments["subject"]))
    if html is None:
        return entries
    with Path(html).open("x", encoding="utf-8") as file:
        file.write(html_of(timeline_table(entries)))
    return Answer(entries, f"✓ {html}")


repair = operation_command("repair", repair_view, positional=("action",))
rollback = operation_command("rollback", repair_view, positional=("act",))
take_back = operation_command("recover_many", repair_view)
backfill = operation_command("backfill", backfill_view, positional=("work",))


resume_autonomy = operation_command("resume_autonomy", "✓ the steward goes on")


@command(
    "compare",
    view=lambda compared: comparison_view(compared) if compared else "Nothing was compared.",
    positional=("action",),
    without=("candidate",),
    helps={"action": "report, start, promote or stop."},
)
def compare(
    call: Call,
    candidate: Annotated[tuple[str, ...], "With start: a setting, NAME=JSON or NAME=text."] = (),
) -> Answer:
    return Answer(call.do(candidate=read_attributes(candidate, "--candidate") or None))


analytics = operation_command("analytics", analytics_table, positional=("analysis",))
