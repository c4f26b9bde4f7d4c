"""The extension: what the graph adds to a tally."""

from __future__ import annotations

from tallystick.errors import SettingsError
from tallystick.extension import Extension
from tallystick.operations import Operation
from tallystick.ports import Models
from tallystick.settings import Settings
from tallystick_graph.about import about
from tallystick_graph.derived import GraphState, Summaries
from tallystick_graph.entity_signals import entity_signals
from tallystick_graph.mentions import follow_change, queue_reading
from tallystick_graph.overview import communities_in
from tallystick_graph.reading import link_extraction
from tallystick_graph.reading_jobs import GraphHandler
from tallystick_graph.summaries import SummaryHandler


def _require_use(settings: Settings, models: Models) -> None:
    """Raise SettingsError for a model that nothing would call."""
    if models.summarizer is not None and not settings.graph:
        raise SettingsError(
            "The setting `graph` is off, so that there are no communities and the summarizer is "
            "never called. Turn it on, or give none."
        )
    if settings.summary_model is not None and not settings.graph:
        raise SettingsError(
            "`summary_model` names a model, and `graph` is off, so that there are no communities "
            "to summarize. Turn `graph` on, or name none."
        )


EXTENSION: Extension[Operation] = Extension(
    require_use=_require_use,
    on_show=queue_reading,
    on_rewrite=follow_change,
    on_extraction=link_extraction,
    signals=entity_signals,
    handlers=lambda context, outbound: (GraphHandler(context), SummaryHandler(context, outbound)),
    derived=lambda context: (GraphState(context), Summaries(context)),
    modes={"about": about, "communities": communities_in},
)
