"""Views of health, alerts, measures, repairs and timelines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from html import escape

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.records.times import moment_text
from tallystick_cli.views import common
from tallystick_cli.views.common import facts, panel, report, table

POOR, _WELL = 50, 90


def _score(score: int) -> Text:
    style = "green" if score >= _WELL else "yellow" if score >= POOR else "red"
    return Text(str(score), style=style)


def _lost(domain: records.DomainHealth) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {domain.facts.get(name)} (-{points})"
        for name, points in domain.losses.items()
    )


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
    known = {name: partial(_fact, name=name) for name in domain.facts}
    shown = facts(domain, "domain", score=lambda each: _score(each.score), **known)
    return panel(domain.domain, shown)


def _fact(domain: records.DomainHealth, name: str) -> str:
    return common.one_line(domain.facts[name])


def comparison_view(compared: records.Comparison) -> RenderableType:
    """Return how far a comparison came, and its runs."""
    shown = facts(
        compared,
        "skipped",
        candidate=lambda each: ", ".join(sorted(each.candidate)),
        sample=lambda each: f"{each.sample_percent} %",
        green=lambda each: f"{each.green} runs in a row",
        wrong=lambda each: ", ".join(f"{name} {n}" for name, n in each.reasons.items()),
        because=lambda each: ", ".join(each.breach),
    )
    runs = [*compared.runs, compared.run]
    return panel(f"comparison {compared.state}", shown, run_table(runs))


def run_table(runs: Iterable[records.ComparedRun]) -> Table:
    """Return runs, the one under way last; times are means of a question."""

    def mean(micros: int, run: records.ComparedRun) -> str:
        return f"{micros / 1_000 / max(1, run.questions):.1f}"

    return table(
        runs,
        "questions wrong same_best shared",
        "Runs",
        verdict=lambda run: "" if not run.questions else "green" if run.is_green else "red",
        settings_ms=lambda run: mean(run.old_us, run),
        candidate_ms=lambda run: mean(run.new_us, run),
    )


def alert_table(alerts: Iterable[records.Alert]) -> Table:
    """Return alerts, one in a row."""
    return table(alerts, "name text since=at", "Alerts")


def measure_table(measures: Iterable[records.Measure]) -> Table:
    """Return measures, one sample in a row."""
    rows = [
        records.AnalyticsRow(
            labels={"measure": each.name, **sample.labels}, count=0, facts={"value": sample.value}
        )
        for each in measures
        for sample in each.samples
    ]
    return table(
        rows,
        "",
        measure=lambda row: row.labels["measure"].removeprefix("tallystick_"),
        of=lambda row: ", ".join(v for k, v in row.labels.items() if k != "measure" and v),
        value=lambda row: f"{row.facts['value']:.6g}",
    )


def event_table(events: Iterable[records.TallyEvent]) -> Table:
    """Return events, one in a row."""
    return table(events, "cursor kind event subject_id scope when=at")


def timeline_table(entries: Iterable[records.TimelineEntry]) -> Table:
    """Return what happened, one entry in a row."""
    return table(
        entries,
        "when=at event actor surface subject_id",
        by=lambda each: "itself" if each.automatic else "",
        reason=lambda each: common.cut_text(each.reason or "", 40),
        facts=lambda each: common.one_line(each.facts) if each.facts else "",
    )


def timeline_page(entries: Sequence[records.TimelineEntry]) -> str:
    """Return what happened as a page that stands by itself."""
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td>{escape(str(text))}</td>"
            for text in (
                moment_text(each.at, "%Y-%m-%d %H:%M:%S"),
                each.event,
                each.actor or "",
                each.surface or "",
                each.subject_id or "",
                "automatic" if each.automatic else "",
                each.reason or "",
                each.facts or "",
            )
        )
        + "</tr>"
        for each in entries
    )
    heads = "".join(
        f"<th>{name}</th>"
        for name in ("When, UTC", "Event", "Actor", "Surface", "About", "By", "Reason", "Facts")
    )
    style = "body{font:14px system-ui;margin:2rem}td,th{padding:.2rem .6rem;text-align:left}"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Timeline</title>'
        f"<style>{style}</style><h1>Timeline</h1><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></html>\n"
    )


def repair_view(repair: records.Repair) -> RenderableType:
    """Return what a repair did, with health before and after."""
    fields = facts(
        repair,
        "action state target changed",
        facts=lambda each: common.one_line(each.facts) if each.facts else None,
        before=lambda each: min(each.before.values(), default=None),
        after=lambda each: min(each.after.values(), default=None),
        act=lambda each: each.correlation_id,
    )
    return panel(repair.action, fields)


def backfill_view(portion: records.Backfill) -> RenderableType:
    """Return a portion of work on what was there before."""
    shown = facts(
        portion,
        "work mode scope total portion enqueued tokens",
        cost=lambda each: None if each.cost is None else str(each.cost),
    )
    if portion.is_over:
        return panel("backfill", shown, report("nothing is left"))
    return panel("backfill", shown)


def analytics_table(rows: Sequence[records.AnalyticsRow]) -> Table:
    """Return the rows of an analysis."""
    return table(
        rows,
        "",
        of=lambda each: ", ".join(value for value in each.labels.values() if value),
        count=lambda each: each.count,
        facts=lambda each: ", ".join(f"{k} {v:.5g}" for k, v in each.facts.items()),
    )
