"""The graph of a tally: the entities that memories mention, and what they say of two of them.

It is derived: everything in it is made anew from the memories, without a model. Off until a setting
turns it on.
"""

from tallystick.graph.about import about
from tallystick.graph.aliases import alias_of, likeness
from tallystick.graph.mending import mend_graph
from tallystick.graph.names import Name, Names, Said, names_of, normal_name
from tallystick.graph.reading import ReadPage, link_page, read_page

__all__ = [
    "Name",
    "Names",
    "ReadPage",
    "Said",
    "about",
    "alias_of",
    "likeness",
    "link_page",
    "mend_graph",
    "names_of",
    "normal_name",
    "read_page",
]
