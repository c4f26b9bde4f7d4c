"""What Python refuses or tells apart, the client over HTTP refuses and tells apart too: no argument
is dropped, and none changes the path of its request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tallystick import Actor
from tallystick.errors import InvalidInput
from tallystick.memory import Put
from tallystick.tally import BoundTally
from tallystick_mcp import serve
from tallystick_server import RemoteTally

from .mcp_clients import connected, payload
from .served import ROOT, Served, served


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as there:
        yield there


@pytest.fixture
def eva(there: Served) -> BoundTally:
    return there.tally.bind(Actor(user="eva", projects={"café"}))


@pytest.fixture
def afar(there: Served, eva: BoundTally) -> Iterator[RemoteTally]:
    with there.remote(eva.actor) as remote:
        yield remote


def test_no_filter_is_left_out_because_it_is_empty(eva: BoundTally, afar: RemoteTally) -> None:
    eva.remember("The heron nests in March.", tags=["bird"])
    afar.items.put([Put(("birds",), "heron", {"legs": 2})])

    assert (len(eva.memories()), len(eva.memories(namespace=None))) == (2, 1)
    for refined in ({"namespace": None}, {"namespace": ()}, {"states": ()}, {"kinds": ()}):
        assert [m.id for m in afar.memories(**refined)] == [m.id for m in eva.memories(**refined)]
    for empty in ({"status": ""}, {"before": ""}, {"tags": ("",)}, {"project": ""}):
        with pytest.raises(InvalidInput, match="takes no empty text"):
            afar.memories(**empty)
    with pytest.raises(InvalidInput, match="takes no empty text"):
        afar.explore("")


@pytest.mark.parametrize("odd", ["", ".", "..", "a/b", "../memories", "x\udfff"])
def test_an_id_never_makes_the_path_of_another_resource(afar: RemoteTally, odd: str) -> None:
    for call in (afar.get, afar.inspect, afar.history, afar.recordings.run, afar.approvals.get):
        with pytest.raises(InvalidInput, match=r"path of a URL|half a character"):
            call(odd)
    with pytest.raises(InvalidInput, match=r"path of a URL|half a character"):
        afar.forget(odd, reason="a test")


def test_the_same_key_is_the_same_call_in_python_and_over_http(
    eva: BoundTally, afar: RemoteTally
) -> None:
    here = eva.remember("The tide turns.", idempotency_key="früh-٣")
    assert afar.remember("The tide turns.", idempotency_key="früh-٣") == here

    for key in ("", " ", " früh", "a\x00b", "x\udfff"):
        with pytest.raises(InvalidInput, match="printable text"):
            afar.remember("The tide turns.", idempotency_key=key)
        with pytest.raises(InvalidInput, match="printable text"):
            afar.items.sweep(idempotency_key=key)


def test_a_scope_of_any_letters_is_worked_in_over_http(eva: BoundTally, afar: RemoteTally) -> None:
    told = afar.within("project:café").remember("The café opens at eight.")
    assert str(eva.get(told.id).scope) == "project:café"


def test_a_user_whose_name_has_a_slash_is_erased_over_http(there: Served) -> None:
    there.tally.bind(Actor(user="staff/ann")).remember("Ann likes tea.")
    with there.remote(ROOT) as remote:
        preview = remote.operator.erase_user("staff/ann", reason="she asked")
    assert preview.counts["memories"] == 1


def test_a_text_too_long_for_the_server_is_refused_once_and_as_an_argument(
    afar: RemoteTally,
) -> None:
    with pytest.raises(InvalidInput, match="bytes at most"):
        afar.remember("x y " * 2_500_000)


@pytest.mark.parametrize(
    "place",
    [
        "/v1/tokens?limit=5",
        "/v1/spaces?scope=project:apollo",
        "/v1/runs/some?step=1",
        "/v1/memories?status=todo&status=done",
        "/v1/memories?limit=1&limit=2",
        "/v1/jobs?state=dead&kind=a&kind=b",
    ],
)
def test_no_part_of_a_url_is_read_over(there: Served, place: str) -> None:
    answer = there.http(there.token(ROOT)).get(place)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


def test_nothing_beside_a_body_in_the_url_is_read_over(there: Served) -> None:
    caller = there.http(there.token(ROOT))
    answer = caller.post("/v1/memories?scope=project:apollo", json={"content": "A text."})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    listed = caller.get("/v1/memories?kinds=note&kinds=fact&tags=a&tags=b&namespace=a&namespace=b")
    assert listed.status_code == 200


async def test_explore_over_mcp_reads_over_no_argument(eva: BoundTally) -> None:
    async with connected(serve(eva), "auto") as client:

        async def explore(**arguments: Any) -> dict[str, Any]:
            return payload(await client.call_tool("explore", arguments))

        for stray in ({"kinds": ["note"]}, {"id": "some"}, {"before": "some"}, {"depth": 2}):
            told = await explore(mode="policy", query="deploy", **stray)
            assert told["error"]["code"] == "invalid_input"
        judged = await explore(mode="policy", query="deploy", arguments={"to": "production"})
        assert judged["policy"]["effect"] == "allow"


async def test_access_over_mcp_is_that_of_the_project_it_names(there: Served) -> None:
    actor = Actor(user="mia", projects={"apollo", "hermes"})
    async with connected(serve(there.tally, actor=actor), "auto") as client:
        for arguments, scopes in (
            ({}, ["private:mia", "project:apollo", "project:hermes"]),
            ({"project": "apollo"}, ["project:apollo"]),
        ):
            told = payload(await client.call_tool("explore", {"mode": "access", **arguments}))
            assert [each["scope"] for each in told["access"]["scopes"]] == scopes
