"""OpenTelemetry on a tally: what was recorded, as spans and metrics of the GenAI conventions."""

from tallystick.errors import require

require("opentelemetry.sdk", extra="opentelemetry")

from tallystick_opentelemetry.exporter import Exporter, export_run, export_runs  # noqa: E402
from tallystick_opentelemetry.ids import current_trace  # noqa: E402
from tallystick_opentelemetry.measures import observe_measures  # noqa: E402

__all__ = ["Exporter", "current_trace", "export_run", "export_runs", "observe_measures"]
