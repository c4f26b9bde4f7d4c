"""The graph of a tally: the entities that memories mention, and what they say of two of them.

Its names are those that a model found in a text or that a memory was remembered with, and they are
found again where a text writes them exactly. Off until a setting turns it on.
"""

from tallystick.graph.about import about
from tallystick.graph.communities import divide, read_division, wants_summary
from tallystick.graph.names import ENTITY_TYPES, KnownNames
from tallystick.graph.overview import Shown, communities_in, shown_communities
from tallystick.graph.reading import ReadPage, link_page, read_extraction, read_page

__all__ = [
    "ENTITY_TYPES",
    "KnownNames",
    "ReadPage",
    "Shown",
    "about",
    "communities_in",
    "divide",
    "link_page",
    "read_division",
    "read_extraction",
    "read_page",
    "shown_communities",
    "wants_summary",
]
