"""Items of a tally behind a server: what `bound.items` is here, without functions of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel

from tallystick.errors import InvalidInput
from tallystick.memory import Item, Put
from tallystick_server.client.calls import Call, body_of
from tallystick_server.client.connections import Connection
from tallystick_server.items import FindItems, GetItems, ItemAnswer, PutItems
from tallystick_server.routes import PREFIX


@dataclass(frozen=True)
class RemoteItems:
    """The items of one scope, behind a server."""

    connection: Connection

    def put(self, puts: Sequence[Put], *, idempotency_key: str | None = None) -> None:
        """Put and delete in one transaction, all or none. Raises as `Items.put`."""
        values = {"puts": [asdict(put) for put in puts]}
        self._send("", int, PutItems, values, key=self._key(idempotency_key))

    def get(
        self, addresses: Sequence[tuple[tuple[str, ...], str]], *, refresh: Sequence[bool] = ()
    ) -> list[Item | None]:
        """Return the item under each (namespace, key), or None. Raises Denied."""
        values = {"addresses": list(addresses), "refresh": [bool(each) for each in refresh]}
        answers = self._send("/get", list[ItemAnswer | None], GetItems, values)
        return [None if each is None else _item(each) for each in answers]

    def find(
        self,
        prefix: Sequence[str] = (),
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = False,
    ) -> list[Item]:
        """Return the items beneath a namespace whose value fits `filter`. Raises Denied."""
        values = {
            "prefix": tuple(prefix),
            "query": query,
            "filter": None if filter is None else dict(filter),
            "limit": limit,
            "offset": offset,
            "refresh": refresh,
        }
        return [_item(each) for each in self._send("/find", list[ItemAnswer], FindItems, values)]

    def namespaces(self) -> list[tuple[str, ...]]:
        """Return every namespace with an item, in order. Raises Denied."""
        return [tuple(each) for each in self._send("/namespaces", list[list[str]])]

    def sweep(self, *, idempotency_key: str | None = None) -> int:
        """Forget the items whose time to live is over; return their number. Raises Denied."""
        number: int = self._send("/sweep", int, key=self._key(idempotency_key))
        return number

    def _key(self, given: str | None) -> str:
        return self.connection.new_key() if given is None else given

    def _send(
        self,
        path: str,
        result: Any,
        model: type[BaseModel] | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> Any:
        try:
            body = None if model is None else body_of(model, values or {})
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"An item holds what JSON cannot: {error}.") from error
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.connection.send(
            Call(
                "POST",
                f"{PREFIX}/items{path}",
                body=body,
                headers=headers,
                is_repeatable=True,
                result=result,
            )
        )


def _item(answer: ItemAnswer) -> Item:
    return Item(answer.namespace, answer.key, answer.memory, answer.ttl, answer.score)
