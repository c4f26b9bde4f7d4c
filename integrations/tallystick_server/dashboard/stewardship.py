"""The page of stewardship: scores, alerts, and plots of the last day and month."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from tallystick.records import AnalyticsRow, Health
from tallystick_server.dashboard.plots import Plot, bars_of
from tallystick_server.dashboard.visits import Visit, form_page, page, reason_of

_DAY, _MONTH = timedelta(days=1), timedelta(days=30)
_ROWS = 12
"""Rows of a card."""


def _stewardship(visit: Visit) -> Response:
    """The health of the tally and its use, for an operator."""
    health: Health = visit.call("health")
    hours = visit.call("analytics", analysis="hours", since=_DAY)
    days = visit.call("analytics", analysis="days", since=_MONTH)
    cards = {
        "Use": visit.call("analytics", analysis="usage", since=_DAY)[:_ROWS],
        "Errors": visit.call("analytics", analysis="errors", since=_DAY)[:_ROWS],
        "Calls of models": visit.call("analytics", analysis="logs", since=_DAY)[:_ROWS],
        "Safety of memory": visit.call("analytics", analysis="memory-safety", since=_DAY)[:_ROWS],
    }
    plots = [
        ("Operations of the last day", _plot("Operations by hour, with those that failed", hours)),
        ("Operations of the last month", _plot("Operations by day, with those that failed", days)),
        ("Remember, p95 ms, of the last day", _slow("Milliseconds of remember by hour", hours)),
        ("Remember, p95 ms, of the last month", _slow("Milliseconds of remember by day", days)),
    ]
    return visit.page("stewardship.html", health=health, plots=plots, cards=cards)


def _plot(says: str, rows: list[AnalyticsRow]) -> Plot | None:
    return bars_of(
        says,
        [
            (
                row.facts["failed"],
                float(row.count),
                f"{row.labels['from']}: {row.count:,}, {row.facts['failed']:.0f} failed",
                "/stewardship",
            )
            for row in rows
        ],
    )


def _slow(says: str, rows: list[AnalyticsRow]) -> Plot | None:
    return bars_of(
        says,
        [
            (
                row.facts["remember_p95_ms"],
                0.0,
                f"{row.labels['from']}: {row.facts['remember_p95_ms']:.0f} ms",
                "/stewardship",
            )
            for row in rows
        ],
    )


def _suspend(visit: Visit) -> Response:
    """Stop what the tally does by itself, before its next action."""
    visit.call("freeze", reason=reason_of(visit.form), what="autonomy")
    return visit.go("/stewardship", note="autonomy_frozen")


def _go_on(visit: Visit) -> Response:
    visit.call("thaw", reason=reason_of(visit.form), what="autonomy")
    return visit.go("/stewardship", note="autonomy_thawed")


ROUTES = [
    page("/stewardship", _stewardship),
    form_page("/stewardship/freeze", _suspend),
    form_page("/stewardship/thaw", _go_on),
]
