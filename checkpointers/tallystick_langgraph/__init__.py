"""LangGraph on a tally: `TallySaver` stores checkpoints beside memory and receipts."""

from tallystick.errors import require

require("langgraph", extra="langgraph")

from tallystick_langgraph.importing import Imported, import_checkpoints  # noqa: E402
from tallystick_langgraph.saver import TallySaver  # noqa: E402
from tallystick_langgraph.serde import TallySerializer  # noqa: E402
from tallystick_langgraph.store import TallyStore  # noqa: E402

__all__ = [
    "Imported",
    "TallySaver",
    "TallySerializer",
    "TallyStore",
    "import_checkpoints",
]
