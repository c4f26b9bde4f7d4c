"""Ingesting: every loader of LangChain as an importer."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document

from tallystick.kit import ActorSource, Binder
from tallystick.kit.binder import call_of_config
from tallystick.records import Import, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_ingest import Ingest


def ingest(
    tally: Tally | BoundTally,
    loader: BaseLoader | Iterable[Document],
    *,
    name: str | None = None,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
) -> Import:
    """Import what a loader yields, or documents that are there, into a private scope; return the
    import as it ended. Loaded again, only what is new or differs is stored.

    With a `name` what it yields is all that this corpus has, so that `remove_vanished` of
    `Ingest(bound)` previews the rest. Raises Denied, and what the loader raises.
    """
    binder = Binder(
        tally,
        runtime="langchain",
        piece="ingest",
        actor=actor,
        scope=scope,
        usage="ingest({}, loader)",
    )
    bound = binder.bound(call_of_config(binder, {}))
    is_loader = isinstance(loader, BaseLoader)
    return Ingest(bound).load(
        loader.lazy_load if isinstance(loader, BaseLoader) else lambda: loader,
        runtime="langchain",
        name=name or (type(loader).__name__ if is_loader else "documents"),
        is_whole=name is not None,
    )
