"""The extension: what the graph adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

if TYPE_CHECKING:
    from tallystick.jobs import Handler
    from tallystick.jobs.derived import Derived
    from tallystick.memory import MemoryContext
    from tallystick.recorder.outbound import Outbound

_GRAPH = Late("tallystick_graph.graph:Graph")


def _handlers(context: MemoryContext, outbound: Outbound) -> Sequence[Handler]:
    from tallystick_graph.reading_jobs import GraphHandler
    from tallystick_graph.summaries import SummaryHandler

    return (GraphHandler(context), SummaryHandler(context, outbound))


def _derived(context: MemoryContext) -> Sequence[Derived]:
    from tallystick_graph.derived import GraphState, Summaries

    return (GraphState(context), Summaries(context))


EXTENSION: Extension[Operation] = Extension(
    on_show=Late("tallystick_graph.mentions:queue_reading"),
    on_rewrite=Late("tallystick_graph.mentions:follow_change"),
    on_extraction=Late("tallystick_graph.reading:link_extraction"),
    signals=Late("tallystick_graph.entity_signals:entity_signals"),
    handlers=_handlers,
    derived=_derived,
    modes={
        "about": Late("tallystick_graph.about:about"),
        "communities": Late("tallystick_graph.overview:communities_in"),
    },
    operations=(
        Operation(
            "aliases",
            "Names of one entity",
            "List names that stand for other entities, each with what tells it.",
            "read",
            ("denied", "rate_limited"),
            verb="graph.aliases",
            face=_GRAPH,
        ),
        Operation(
            "keep_apart",
            "Keep names apart",
            "Part two names, and forbid that they are taken for one entity.",
            "change",
            ("denied", "invalid_input", "not_found", "rate_limited"),
            verb="graph.keep_apart",
            face=_GRAPH,
        ),
    ),
)
