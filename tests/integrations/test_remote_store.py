"""TallyStore on a tally that is served does what it does on the tally itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from tallystick.errors import Denied, InvalidInput
from tallystick_langgraph import TallyStore

from .served import ADA, BOB, Served, served

NOTES = ("notes", "birds")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("stored")) as there:
        yield there


def test_a_store_on_a_server_reads_what_the_store_of_the_tally_reads(there: Served) -> None:
    with there.remote() as remote:
        over_http, direct = TallyStore(remote), TallyStore(there.tally.bind(ADA))
        over_http.put(NOTES, "heron", {"text": "nests in March", "seen": 3})
        over_http.put(NOTES, "stork", {"text": "nests in April", "seen": 5}, ttl=10)
        direct.put(("notes", "fish"), "pike", {"text": "spawns in March", "seen": None})
        searches: list[dict[str, Any]] = [
            {"query": "Who nests in April?"},
            {"filter": {"seen": {"$gt": 3}}},
            {"filter": {"seen": 3}, "limit": 1},
            {"limit": 1, "offset": 1},
        ]
        for search in searches:
            assert over_http.search(("notes",), **search) == direct.search(("notes",), **search)
        assert over_http.list_namespaces() == direct.list_namespaces()
        assert over_http.get(NOTES, "stork") == direct.get(NOTES, "stork")
        over_http.delete(NOTES, "heron")
        assert direct.get(NOTES, "heron") is None
        assert over_http.sweep_ttl() == 0
        with pytest.raises(InvalidInput):
            over_http.put(NOTES, "k", {"v": object()})
        with pytest.raises(InvalidInput, match="unknown operator"):
            over_http.search(("notes",), filter={"seen": {"$near": 3}})


def test_a_batch_over_http_does_what_langgraphs_own_store_does(there: Served) -> None:
    operations: list[Any] = [
        PutOp(("a", "b"), "k", {"v": 1}),
        PutOp(("a", "b"), "k", {"v": 2}),
        PutOp(("a", "c"), "l", {"v": 3}),
        GetOp(("a", "b"), "k"),
        SearchOp(("a",), filter={"v": {"$gte": 2}}),
        ListNamespacesOp(max_depth=1),
    ]
    with there.remote(BOB) as remote:
        ours, theirs = TallyStore(remote), InMemoryStore()
        for batch in (
            operations[:5],
            operations[3:],
            [PutOp(("a", "c"), "l", None)],
            operations[3:],
        ):
            mine, others = ours.batch(batch), theirs.batch(batch)
            assert [_plain(each) for each in mine] == [_plain(each) for each in others]


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return sorted(map(_plain, result))
    if result is None or isinstance(result, tuple):
        return result
    return (result.namespace, result.key, repr(result.value))


def test_items_of_another_are_not_reached(there: Served) -> None:
    with there.remote() as remote, there.remote(BOB) as bob:
        TallyStore(remote).put(NOTES, "mine", {"v": 1})
        assert TallyStore(bob).get(NOTES, "mine") is None
        assert TallyStore(bob).search(NOTES) == []
        with pytest.raises(Denied):
            TallyStore(bob, scope="private:ada").get(NOTES, "mine")


def test_a_put_that_is_sent_again_with_its_key_is_done_once(there: Served) -> None:
    http = there.http(there.token(), **{"idempotency-key": "once"})
    body = {"puts": [{"namespace": ["keys"], "key": "k", "value": {"v": 1}}]}
    first, again = http.post("/v1/items", json=body), http.post("/v1/items", json=body)
    body["puts"][0]["value"] = {"v": 2}
    other = http.post("/v1/items", json=body)

    assert first.json() == again.json()
    assert other.json()["code"] == "idempotency_mismatch"


def test_an_embedder_of_this_process_is_refused(there: Served) -> None:
    index: Any = {"dims": 3, "embed": len}
    with there.remote() as remote, pytest.raises(InvalidInput, match="server's tally"):
        TallyStore(remote, index=index)
