"""The extension: what the graph adds to a tally."""

from __future__ import annotations

from tallystick.extension import Extension
from tallystick.operations import Operation
from tallystick_graph.about import about
from tallystick_graph.derived import GraphState, Summaries
from tallystick_graph.entity_signals import entity_signals
from tallystick_graph.graph import Graph
from tallystick_graph.mentions import follow_change, queue_reading
from tallystick_graph.overview import communities_in
from tallystick_graph.reading import link_extraction
from tallystick_graph.reading_jobs import GraphHandler
from tallystick_graph.summaries import SummaryHandler

EXTENSION: Extension[Operation] = Extension(
    on_show=queue_reading,
    on_rewrite=follow_change,
    on_extraction=link_extraction,
    signals=entity_signals,
    handlers=lambda context, outbound: (GraphHandler(context), SummaryHandler(context, outbound)),
    derived=lambda context: (GraphState(context), Summaries(context)),
    modes={"about": about, "communities": communities_in},
    operations=(
        Operation(
            "aliases",
            "Names of one entity",
            "List names that stand for other entities, each with what tells it.",
            "read",
            ("denied", "rate_limited"),
            verb="graph.aliases",
            face=Graph,
        ),
        Operation(
            "keep_apart",
            "Keep names apart",
            "Part two names, and forbid that they are taken for one entity.",
            "change",
            ("denied", "invalid_input", "not_found", "rate_limited"),
            verb="graph.keep_apart",
            face=Graph,
        ),
    ),
)
