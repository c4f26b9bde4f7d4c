"""The graph: an extension that links memories with the entities that they mention.

Its names are those that a model found in a text or that a memory was remembered with, and they are
found again where a text writes them exactly. Off until a setting turns it on.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_graph.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_graph.graph import AsyncGraph, Graph, GraphVerbs
else:
    __getattr__ = late_names(__name__, {"graph": "AsyncGraph Graph GraphVerbs"})

__all__ = ["EXTENSION", "AsyncGraph", "Graph", "GraphVerbs"]
