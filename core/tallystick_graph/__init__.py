"""The graph: an extension that links memories with the entities that they mention.

Its names are those that a model found in a text or that a memory was remembered with, and they are
found again where a text writes them exactly. Off until a setting turns it on.
"""

from tallystick_graph.extension import EXTENSION
from tallystick_graph.graph import AsyncGraph, Graph, GraphVerbs

__all__ = ["EXTENSION", "AsyncGraph", "Graph", "GraphVerbs"]
