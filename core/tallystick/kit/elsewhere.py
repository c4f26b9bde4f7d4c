"""A tally that is elsewhere, behind a server: what the pieces that record nothing need of it.

The client of a server has these verbs, so that no adapter imports the server. Rules over tool calls
and the codes of frames are that tally's own, and are made where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from tallystick.errors import Blocked
from tallystick.memory import Item, Put
from tallystick.operations import MODEL_TOOLS
from tallystick.records import Actor, JsonObject, Scope
from tallystick.tally import BoundTally


class ItemsElsewhere(Protocol):
    """The items of one scope of a tally behind a server."""

    def put(self, puts: Sequence[Put], *, idempotency_key: str | None = None) -> None:
        """Put and delete in one transaction, all or none."""
        ...

    def get(
        self, addresses: Sequence[tuple[tuple[str, ...], str]], *, refresh: Sequence[bool] = ()
    ) -> list[Item | None]:
        """Return the item under each address, or None."""
        ...

    @property
    def find(self) -> Callable[..., list[Item]]:
        """Return the items beneath a namespace; `filter` takes the place of `keep`."""
        ...

    def namespaces(self) -> list[tuple[str, ...]]:
        """Return every namespace with an item, in order."""
        ...

    def sweep(self, *, idempotency_key: str | None = None) -> int:
        """Forget the items whose time to live is over; return their number."""
        ...


@runtime_checkable
class TallyElsewhere(Protocol):
    """A tally behind a server, as one actor sees it in one scope."""

    @property
    def recall(self) -> Any:
        """The verb `BoundTally.recall`. A client may make it when it is looked up."""
        ...

    @property
    def items(self) -> ItemsElsewhere:
        """The items of the scope."""
        ...

    def whoami(self) -> Actor:
        """Return who acts there."""
        ...

    def within(self, scope: str | Scope) -> TallyElsewhere:
        """Return the same tally for calls that work in `scope`."""
        ...

    def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Call a memory tool; return its answer. Raises Blocked where a rule there says so."""
        ...

    def frame_codes(self, texts: Sequence[str]) -> list[str]:
        """Return the code of a frame around each of these texts."""
        ...


def run_memory_tool(
    bound: BoundTally | TallyElsewhere, name: str, arguments: JsonObject
) -> dict[str, Any]:
    """Run a memory tool where its tally is, and return its answer as it was made there; what a rule
    of that tally stopped is an answer that the model reads.
    """
    if isinstance(bound, BoundTally):
        return MODEL_TOOLS[name].function(bound, **arguments)
    try:
        return bound.call_tool(name, arguments)
    except Blocked as error:
        return {"error": error.code, "message": str(error)}
