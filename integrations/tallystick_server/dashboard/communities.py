"""Communities: the groups of names that memories mention together, as a picture and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from tallystick.errors import MissingExtra, NotFound
from tallystick.records import Explored, ExploredCommunity
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, page

_LISTED = 40
_DEPTH = 2
_IN_A_ROW = 6
_CELL = 130
"""Units of the picture that a community has room for."""
_NAMED = 3


@dataclass(frozen=True)
class Circle:
    """A community in the picture: the more memories, the larger."""

    community: ExploredCommunity
    x: int
    y: int
    radius: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names that stand below it."""
        return self.community.names[:_NAMED]


def _communities(visit: Visit) -> Response:
    words = visit.text("q")
    problem = None
    listed: tuple[ExploredCommunity, ...] = ()
    try:
        explored: Explored = visit.call(
            "explore", around=words or None, mode="communities", depth=_DEPTH, limit=_LISTED
        )
        listed = explored.communities
    except MissingExtra as error:
        problem = str(error)
    except NotFound:  # nothing is about these words
        listed = ()
    broad = [each for each in listed if each.level == 0] if not words else list(listed)
    return visit.page(
        "communities.html",
        words=words,
        scope=visit.bound.scope,
        scopes=[each for each in scopes_of(visit) if each.readable],
        communities=listed,
        circles=_place_circles(broad),
        height=_CELL * math.ceil(len(broad) / _IN_A_ROW),
        width=_CELL * _IN_A_ROW,
        problem=problem,
    )


def _place_circles(communities: Sequence[ExploredCommunity]) -> list[Circle]:
    """Return the circles in rows; their areas are as their numbers of memories."""
    most = max((each.memory_count for each in communities), default=1) or 1
    return [
        Circle(
            community=each,
            x=_CELL * (place % _IN_A_ROW) + _CELL // 2,
            y=_CELL * (place // _IN_A_ROW) + 45,
            radius=max(round(38 * math.sqrt(each.memory_count / most)), 6),
        )
        for place, each in enumerate(communities)
    ]


ROUTES = [page("/communities", _communities)]
