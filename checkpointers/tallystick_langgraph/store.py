"""TallyStore: LangGraph's long-term store on the memory of a tally.

What an agent puts is a memory: recallable, inspectable, with a history, forgettable and scoped like
every other. Who acts is taken from the config of the node under way, as TallySaver takes it;
outside of a graph it is the bound actor or the owner. Each batch is read first and then written in
one transaction, as LangGraph's own stores do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self, TypedDict

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.store.base import (
    BaseStore,
    GetOp,
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

from tallystick.adapters import Binder
from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.memory import Item, Items, Put
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_langgraph.from_conn_string import Opened
from tallystick_langgraph.saver import ActorSource, actor_from_configurable, thread_of

__all__ = ["StoreIndex", "TallyStore"]

_MINUTE = 60 * 1_000_000
_LONGEST = 1_000 * 365 * 24 * 60
"""Minutes."""


class StoreIndex(TypedDict, total=False):
    """Which fields of a value are found by a query, unless a put says otherwise."""

    fields: list[str]
    """Paths such as `text`, `author.name`, `parts[*].text`; `$` is the whole value, and the
    default.
    """


class TallyStore(BaseStore):
    """Long-term store for graphs: `builder.compile(checkpointer=TallySaver(tally),
    store=TallyStore(tally))`.
    """

    supports_ttl = True

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        index: StoreIndex | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        """`actor` says who acts (by default the Actor under `configurable["actor"]`, else the bound
        one or the owner); `scope` where items live, by default the actor's private scope. `index`
        names the fields that are found by a query; the embedder is the tally's. `ttl` is
        LangGraph's: `default_ttl` in minutes and `refresh_on_read`.
        """
        self._binder = Binder[RunnableConfig](
            tally,
            surface="langgraph",
            actor=actor or actor_from_configurable,
            scope=scope,
            session=thread_of,
        )
        self._fields = tuple((index or {}).get("fields") or ["$"])
        self.ttl_config = ttl

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Opened[Self]:
        """A store on a tally of its own, which is closed at the end of a `with` or `async with`
        block.

        `conn_string` is the folder of a tally or postgresql://…, made on first use; options are
        those of TallyStore.
        """
        return Opened(cls, conn_string, options)

    def setup(self) -> None:
        """Nothing: a tally is set up when it is opened. LangGraph's own stores have to be told."""

    def sweep_ttl(self) -> int:
        """Forget the items whose time to live is over; how many. Nobody finds them before,
        either.
        """
        return self._items().sweep()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads see what stood before the batch, of several puts to a key the
        last counts.

        Raises InvalidInput, Denied, or StateConflict for an item that is pinned or locked; then
        nothing was written.
        """
        wanted = list(ops)
        items = self._items()
        results: list[Result] = [None] * len(wanted)
        gets = [(place, op) for place, op in enumerate(wanted) if isinstance(op, GetOp)]
        # A batch that only writes is no read, for policy as for limits.
        addresses = [(op.namespace, str(op.key)) for _, op in gets]
        found = items.get(addresses, refresh=[op.refresh_ttl for _, op in gets]) if gets else []
        for (place, _), item in zip(gets, found, strict=True):
            results[place] = None if item is None else StoreItem(**_shown(item))
        puts: dict[tuple[tuple[str, ...], str], Put] = {}
        for place, op in enumerate(wanted):
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

    def _items(self) -> Items:
        return self._binder.bound(ensure_config()).items

    def _put(self, op: PutOp) -> Put:
        if op.value is not None and not isinstance(op.value, dict):
            raise InvalidInput(
                f"The value of {op.key!r} has to be a dict, not {type(op.value).__name__}."
            )
        fields = () if op.index is False else self._fields if op.index is None else tuple(op.index)
        if op.ttl is not None and not 0 < op.ttl < _LONGEST:
            raise InvalidInput(
                f"The ttl of {op.key!r} has to be more than 0 minutes and less than a thousand "
                f"years."
            )
        ttl = None if op.ttl is None else round(op.ttl * _MINUTE)
        return Put(tuple(op.namespace), str(op.key), op.value, fields, ttl)

    def _search(self, items: Items, op: SearchOp) -> list[SearchItem]:
        _check(op.filter)
        found = items.find(
            op.namespace_prefix,
            query=op.query,
            keep=lambda value: _passes(value, op.filter),
            limit=op.limit,
            offset=op.offset,
            refresh=op.refresh_ttl,
        )
        return [SearchItem(**_shown(item), score=item.score) for item in found]


def _shown(item: Item) -> dict[str, Any]:
    memory = item.memory
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": _when(memory.created_at),
        "updated_at": _when(memory.updated_at),
    }


def _when(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, tz=UTC)


_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def _check(wanted: Mapping[str, Any] | None) -> None:
    for field, value in (wanted or {}).items():
        unknown = (
            [name for name in value if name.startswith("$") and name not in _OPERATORS]
            if _asks(value)
            else []
        )
        if unknown:
            raise InvalidInput(
                f"filter[{field!r}]: unknown operator {unknown[0]}. Use one of "
                f"{', '.join(_OPERATORS)}."
            )


def _asks(value: Any) -> bool:
    return isinstance(value, Mapping) and any(
        isinstance(name, str) and name.startswith("$") for name in value
    )


def _passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(_fits(value.get(field), asked) for field, asked in (wanted or {}).items())


def _fits(found: Any, asked: Any) -> bool:
    """Whether a value is what a filter asks: equal, field by field for a dict, or as its operators
    say.
    """
    if _asks(asked):
        return all(_compares(found, operator, other) for operator, other in asked.items())
    if isinstance(asked, Mapping):
        return isinstance(found, Mapping) and all(
            _fits(found.get(name), inner) for name, inner in asked.items()
        )
    if isinstance(asked, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(asked)
        return same and all(_fits(one, other) for one, other in zip(found, asked, strict=True))
    return bool(found == asked)


def _compares(found: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(found == other)
    if operator == "$ne":
        return bool(found != other)
    if isinstance(found, str) and isinstance(other, str):
        left: Any = found
        right: Any = other
    else:
        try:
            left, right = float(found), float(other)
        except (TypeError, ValueError):
            return False
    return bool(
        {"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[
            operator
        ]
    )


def _namespaces(items: Items, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    found = [
        namespace
        for namespace in items.namespaces()
        if all(_matches(namespace, condition) for condition in op.match_conditions or ())
    ]
    if op.max_depth is not None:
        found = sorted({namespace[: op.max_depth] for namespace in found})
    return found[op.offset : op.offset + op.limit]


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends with a path, in which `*` stands for any one label."""
    path: Sequence[str] = condition.path
    if len(namespace) < len(path):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
