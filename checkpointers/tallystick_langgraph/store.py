"""TallyStore: LangGraph's long-term store on the memory of a tally.

What an agent puts is a memory: recallable, inspectable, with a history, forgettable and scoped like
every other. Who acts is what the running node's call names, as for TallySaver. Each batch is read
first and then written in one transaction, as LangGraph's own stores do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from langchain_core.runnables.config import ensure_config
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from langgraph.store.base import Item as StoreItem

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.kit import ActorSource, TallyElsewhere, binder_of, check_names
from tallystick.kit.elsewhere import ItemsElsewhere
from tallystick.kit.item_filters import check_filter, passes
from tallystick.memory import Item, Items, Put
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_langgraph.calls import call_of
from tallystick_langgraph.from_conn_string import ManagedTally, SetUp
from tallystick_langgraph.store_config import checked_fields, checked_ttl, is_minutes
from tallystick_langgraph.sweeper import Sweeper

_MINUTE = 60 * 1_000_000
_SWEEP_MINUTES = 5
"""Minutes between two sweeps of a sweeper, as in LangGraph's own stores."""


class TallyStore(BaseStore):
    """Long-term store for graphs: `builder.compile(checkpointer=TallySaver(tally),
    store=TallyStore(tally))`.

    Your nodes and tools fill it, with `put`: a graph puts nothing into a store by itself. What
    users say becomes memories by `TallyCallbackHandler(tally, capture="user")` of LangChain's
    adapter.
    """

    supports_ttl = True

    def __init__(
        self,
        tally: Tally | BoundTally | TallyElsewhere,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        namespace: Sequence[str] | None = None,
    ) -> None:
        """`actor` says who acts, by default what the call names (docs/who-acts.md);
        `scope` is the scope of items, by default the actor's private one. `index` names the fields
        that a query searches; the embedder is the tally's, so that `dims` and `embed` have to be
        its own; with a tally behind a server they are left out. `ttl` is LangGraph's: `default_ttl`
        in minutes, `refresh_on_read` and `sweep_interval_minutes`. Expired items are never read,
        and `sweep_ttl` forgets them. `namespace` is a template such as `("memories", "{user_id}")`,
        beneath which whoever acts reaches their own items only. What cannot be honoured raises
        InvalidInput.
        """
        self._binder = binder_of(
            tally, runtime="langgraph", piece="TallyStore", actor=actor, scope=scope
        )
        self._fields = checked_fields(index, self._binder.tally)
        self.index_config = index
        self.ttl_config = checked_ttl(ttl)
        if namespace is not None:
            check_names("namespace", namespace)
        self._namespace = namespace
        self._sweeper = Sweeper(self._binder.tally, self.sweep_ttl)

    def __repr__(self) -> str:
        fields = None if self._fields == ("$",) else list(self._fields)
        return self._binder.describe(fields=fields, ttl=self.ttl_config)

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        namespace: Sequence[str] | None = None,
    ) -> ManagedTally[Self]:
        """Return a store on a tally of its own, which is closed at the end of a `with` or `async
        with` block.

        `conn_string` is the folder of a tally or postgresql://…, created on first use; the rest is
        as for TallyStore.
        """
        store = partial(cls, actor=actor, scope=scope, index=index, ttl=ttl, namespace=namespace)
        return ManagedTally(store, conn_string, piece="TallyStore", actor=actor, scope=scope)

    def setup(self) -> SetUp:
        """Do nothing: a tally is set up when it is opened. LangGraph's stores need this call, and
        the asynchronous ones await it, which is possible here too.
        """
        return SetUp()

    def sweep_ttl(self) -> int:
        """Forget the items whose time to live is over; return how many. They are not found before,
        either.
        """
        return self._items().sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Call `sweep_ttl` at intervals, in a thread that ends with the tally, as whoever calls
        this; return a future that can be cancelled.

        The interval is that of `ttl` by default, else 5 minutes. Without a `ttl` nothing is
        started, and the future is done.
        """
        if not self.ttl_config:
            future: Future[None] = Future()
            future.set_result(None)
            return future
        interval = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes")
        return self._sweeper.start(minutes=float(interval or _SWEEP_MINUTES))

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the thread of `start_ttl_sweeper`; False if it has not ended after `timeout`
        seconds.
        """
        return self._sweeper.stop(timeout)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads see the state before the batch, of several puts to a key the
        last counts.

        Raises InvalidNamespaceError as LangGraph's stores do, InvalidInput, Denied, also where a
        namespace names another user than the one who acts, or StateConflict for an item that is
        pinned or locked; then nothing was written.
        """
        operations = list(ops)
        for op in operations:
            _check_labels(op)
            _check_page(op)
        # A list of namespaces is one of the actor's own.
        asked = [op for op in operations if not isinstance(op, ListNamespacesOp)]
        items = self._items([path for op in asked for path in _paths(op)])
        results: list[Result] = [None] * len(operations)
        gets = [(place, op) for place, op in enumerate(operations) if isinstance(op, GetOp)]
        # A batch that only writes is no read, for policy as for limits.
        addresses = [(op.namespace, str(op.key)) for _, op in gets]
        stored = items.get(addresses, refresh=[op.refresh_ttl for _, op in gets]) if gets else []
        for (place, _), item in zip(gets, stored, strict=True):
            results[place] = None if item is None else StoreItem(**_item_fields(item))
        puts: dict[tuple[tuple[str, ...], str], Put] = {}
        for place, op in enumerate(operations):
            if isinstance(op, SearchOp):
                results[place] = self._search(items, op)
            elif isinstance(op, ListNamespacesOp):
                results[place] = _namespaces(items, op)
            elif isinstance(op, PutOp):
                puts.pop((op.namespace, str(op.key)), None)
                puts[op.namespace, str(op.key)] = self._put(op)
        if puts:
            items.put(list(puts.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Same as `batch`."""
        return await in_thread(self.batch, list(ops))

    def _items(self, namespaces: Sequence[Sequence[str]] = ()) -> Items | ItemsElsewhere:
        call = call_of(self._binder, ensure_config())
        bound = self._binder.bound(call)
        self._binder.refuse_namespaces(call, namespaces, self._namespace)
        return bound.items

    def _put(self, op: PutOp) -> Put:
        if op.value is not None and not isinstance(op.value, dict):
            raise InvalidInput(
                f"The value of {op.key!r} has to be a dict, not {type(op.value).__name__}."
            )
        if op.index:
            check_names("index", op.index)
        fields = () if op.index is False else self._fields if op.index is None else tuple(op.index)
        if op.ttl is not None and not is_minutes(op.ttl):
            raise InvalidInput(
                f"The ttl of {op.key!r} has to be more than 0 minutes and less than a thousand "
                f"years."
            )
        ttl = None if op.ttl is None else round(op.ttl * _MINUTE)
        return Put(tuple(op.namespace), str(op.key), op.value, fields, ttl)

    def _search(self, items: Items | ItemsElsewhere, op: SearchOp) -> list[SearchItem]:
        check_filter(op.filter)
        # A function cannot go to a server, and the filter can.
        chosen: dict[str, Any] = {"filter": op.filter}
        if isinstance(items, Items):
            chosen = {"keep": lambda value: passes(value, op.filter)} if op.filter else {}
        hits = items.find(
            op.namespace_prefix,
            query=op.query,
            **chosen,
            limit=op.limit,
            offset=op.offset,
            refresh=op.refresh_ttl,
        )
        return [SearchItem(**_item_fields(item), score=item.score) for item in hits]


def _item_fields(item: Item) -> dict[str, Any]:
    memory = item.memory
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": _datetime(memory.created_at),
        "updated_at": _datetime(memory.updated_at),
    }


def _datetime(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, tz=UTC)


def _paths(op: Op) -> list[tuple[str, ...]]:
    """Return the namespaces that an operation names, whole or in part."""
    if isinstance(op, ListNamespacesOp):
        return [tuple(condition.path) for condition in op.match_conditions or ()]
    return [op.namespace_prefix if isinstance(op, SearchOp) else op.namespace]


def _check_labels(op: Op) -> None:
    """Raise InvalidNamespaceError for a label that no namespace may have: LangGraph checks those of
    `put` alone, and not those of a batch.
    """
    for path in _paths(op):
        for label in path:
            if not isinstance(label, str) or not label or "." in label or "\x00" in label:
                raise InvalidNamespaceError(
                    f"The label {label!r} of the namespace {path!r} is not valid. A label is a "
                    f"text that is not empty and has no period and no NUL."
                )


def _check_page(op: Op) -> None:
    """Raise InvalidInput for a query that is no text, and for a page that is none."""
    if isinstance(op, SearchOp) and not isinstance(op.query, str | None):
        raise InvalidInput("`query` takes a text.", argument="query")
    for name in ("limit", "offset") if isinstance(op, SearchOp | ListNamespacesOp) else ():
        value = getattr(op, name)
        if not isinstance(value, int) or value < 0:
            raise InvalidInput(f"`{name}` takes a whole number, 0 or more.", argument=name)


def _namespaces(items: Items | ItemsElsewhere, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    namespaces = [
        namespace
        for namespace in items.namespaces()
        if all(_matches(namespace, condition) for condition in op.match_conditions or ())
    ]
    if op.max_depth is not None:
        namespaces = sorted({namespace[: op.max_depth] for namespace in namespaces})
    return namespaces[op.offset : op.offset + op.limit]


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return True if a namespace begins or ends with a path, in which `*` matches any label."""
    path: Sequence[str] = condition.path
    if len(namespace) < len(path):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(pattern in ("*", label) for pattern, label in zip(path, part, strict=True))
