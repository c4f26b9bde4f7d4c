"""Routes of items: memories under a namespace and a key, as the stores of runtimes keep them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tallystick.aio import in_thread
from tallystick.kit.item_filters import check_filter, passes
from tallystick.memory import Item, Items, Put
from tallystick.records import JsonObject, Memory
from tallystick_server.answers import answer
from tallystick_server.endpoints import (
    CONDITIONS,
    KeyHeader,
    RequestBody,
    ScopeHeader,
    add_endpoint,
    bound_for,
)

_MOST = 1_000


class PutItem(RequestBody):
    """One change of a store."""

    namespace: tuple[str, ...]
    key: str
    value: JsonObject | None
    """None deletes the item."""
    index: tuple[str, ...] = ("$",)
    """Paths of the fields by which it is found."""
    ttl: int | None = None
    """Microseconds that it lives after it was put, or read; None lives on."""


class PutItems(RequestBody):
    """Changes of a store, all or none."""

    puts: tuple[PutItem, ...] = Field(max_length=_MOST, fail_fast=True)


class GetItems(RequestBody):
    """Addresses, and whether reading each begins its time to live anew."""

    addresses: tuple[tuple[tuple[str, ...], str], ...] = Field(max_length=_MOST, fail_fast=True)
    refresh: tuple[bool, ...] = ()


class FindItems(RequestBody):
    """What to find beneath a namespace."""

    prefix: tuple[str, ...] = ()
    query: str | None = None
    filter: JsonObject | None = None
    """Fields with the values or operators that they fit, as LangGraph's stores have it."""
    limit: int = Field(default=10, ge=0, le=_MOST)
    offset: int = Field(default=0, ge=0)
    refresh: bool = False


class ItemAnswer(BaseModel):
    """The memory under an address."""

    namespace: tuple[str, ...]
    key: str
    memory: Memory
    ttl: int | None
    score: float | None


def add_items(router: APIRouter) -> None:
    """Add the routes of items."""

    add = partial(add_endpoint, router, group="Memory")
    changes = CONDITIONS[1:]
    add("/items", put_items, int, deaf=changes)
    add("/items/get", get_items, list[ItemAnswer | None])
    add("/items/find", find_items, list[ItemAnswer])
    add("/items/namespaces", item_namespaces, list[list[str]])
    add("/items/sweep", sweep_items, int, deaf=changes)


async def put_items(
    request: Request, body: PutItems, scope_header: ScopeHeader = None, key: KeyHeader = None
) -> Response:
    """Put and delete items in one transaction, all or none; return how many changes there were."""

    def put(items: Items) -> int:
        puts = [
            Put(**{name: getattr(each, name) for name in PutItem.model_fields})
            for each in body.puts
        ]
        items.put(puts, idempotency_key=key)
        return len(puts)

    return await _answer(request, scope_header, put)


async def get_items(request: Request, body: GetItems, scope_header: ScopeHeader = None) -> Response:
    """Return the item under each address, or null."""
    return await _answer(
        request,
        scope_header,
        lambda items: [_plain(item) for item in items.get(body.addresses, refresh=body.refresh)],
    )


async def find_items(
    request: Request, body: FindItems, scope_header: ScopeHeader = None
) -> Response:
    """Return the items beneath a namespace: the best answers to a query first, else the newest."""
    check_filter(body.filter)
    return await _answer(
        request,
        scope_header,
        lambda items: [
            _plain(item)
            for item in items.find(
                body.prefix,
                query=body.query,
                keep=(lambda value: passes(value, body.filter)) if body.filter else None,
                limit=body.limit,
                offset=body.offset,
                refresh=body.refresh,
            )
        ],
    )


async def item_namespaces(request: Request, scope_header: ScopeHeader = None) -> Response:
    """Return every namespace with an item, in order."""
    return await _answer(
        request, scope_header, lambda items: [list(each) for each in items.namespaces()]
    )


async def sweep_items(
    request: Request, scope_header: ScopeHeader = None, key: KeyHeader = None
) -> Response:
    """Forget the items whose time to live is over; return their number."""
    return await _answer(request, scope_header, lambda items: items.sweep(idempotency_key=key))


async def _answer(request: Request, scope: str | None, call: Callable[[Items], Any]) -> Response:
    def respond() -> Response:
        bound = bound_for(request, scope)
        return answer(bound, call(bound.items))

    return await in_thread(respond)


def _plain(item: Item | None) -> JsonObject | None:
    if item is None:
        return None
    return {
        "namespace": list(item.namespace),
        "key": item.key,
        "memory": item.memory.dump(),
        "ttl": item.ttl,
        "score": item.score,
    }
