"""A real server of LangGraph, in memory, on TallySaver and TallyStore: with authentication each
user has threads and items of their own, and without it they are the owner's.

`make test-peers` runs it, in the environment that has the server.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph_api", reason="no server of LangGraph is installed")
import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import APIStatusError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HERE = Path(__file__).parent
_SERVE = """
import sys
from langgraph_api.cli import run_server
served = sys.argv[2] + "/served.py:"
run_server(
    port=int(sys.argv[1]),
    graphs={name: served + name for name in ("plain", "delta")},
    auth={"path": served + "auth"} if sys.argv[3] == "with" else None,
    checkpointer={"path": served + "saver"},
    store={"path": served + "store"},
    open_browser=False,
    disable_persistence=True,
)
"""


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module", params=["with", "without"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The URL of a server, and whether it is with authentication."""
    folder, port = tmp_path_factory.mktemp("served"), _free_port()
    log = folder / "server.log"
    command = [sys.executable, "-c", _SERVE, str(port), str(HERE), request.param]
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=out,
            stderr=out,
            env={**os.environ, "SERVED_TALLY": str(folder / "tally"), "LANGSMITH_TRACING": "false"},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if process.poll() is not None:
                pytest.fail(log.read_text()[-4_000:])
            try:
                if httpx.get(f"{url}/ok").is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.25)
        yield url, request.param
        failures = [line for line in log.read_text().splitlines() if "Denied" in line]
        assert [line for line in failures if "missing_actor" in line] == []
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def client_of(served: tuple[str, str]) -> Iterator[Callable[[str], Any]]:
    url, _ = served
    with ExitStack() as clients:

        def client_of(user: str) -> Any:
            client = get_sync_client(url=url, api_key="none", headers={"x-user": user})
            return clients.enter_context(client)

        yield client_of


def _said(word: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": word}]}


def _words(state: Any) -> list[str]:
    return [message["content"] for message in state["values"].get("messages", [])]


@pytest.mark.parametrize("graph", ["plain", "delta"])
def test_a_user_reads_changes_forks_copies_and_deletes_their_threads(
    client_of: Callable[[str], Any], graph: str
) -> None:
    for user in ("ada", "bob"):
        client = client_of(user)
        threads, runs = client.threads, client.runs
        thread = threads.create()["thread_id"]
        for word in ("one", "two"):
            runs.wait(thread, graph, input=_said(f"{user} {word}"))
        told = [f"{user} one", f"noted {user} one", f"{user} two", f"noted {user} two"]

        assert _words(threads.get_state(thread)) == told
        history = threads.get_history(thread)
        assert [len(_words(state)) for state in history] == [4, 3, 2, 2, 1, 0]
        earlier = threads.get_state(thread, checkpoint=history[2]["checkpoint"])
        assert _words(earlier) == told[:2]

        threads.update_state(thread, _said("a change"), as_node="answer")
        assert _words(threads.get_state(thread)) == [*told, "a change"]
        forked = runs.wait(
            thread, graph, input=_said("a fork"), checkpoint=history[2]["checkpoint"]
        )
        fork = [*told[:2], "a fork", "noted a fork"]
        assert [message["content"] for message in forked["messages"]] == fork

        copy = threads.copy(thread)["thread_id"]
        assert _words(threads.get_state(copy)) == fork
        threads.delete(thread)
        assert _words(threads.get_state(copy)) == fork
        with pytest.raises(APIStatusError, match="not found"):
            threads.get_state(thread)


def test_a_user_finds_and_changes_their_items(
    client_of: Callable[[str], Any], served: tuple[str, str]
) -> None:
    _, way = served
    for user in ("cleo", "dan"):
        client = client_of(user)
        thread = client.threads.create()["thread_id"]
        client.runs.wait(thread, "plain", input=_said(f"said by {user}"))
        client.store.put_item(["notes"], key="mine", value={"text": f"put by {user}"})
    for user, other in (("cleo", "dan"), ("dan", "cleo")):
        store = client_of(user).store
        found = {
            item["value"]["text"] for item in store.search_items(["notes"], limit=100)["items"]
        }
        assert f"said by {user}" in found
        assert (f"said by {other}" in found) == (way == "without")
        assert ["notes"] in store.list_namespaces(prefix=["notes"])["namespaces"]
        if way == "with":
            assert store.get_item(["notes"], "mine")["value"]["text"] == f"put by {user}"
            assert store.get_item(["notes"], f"said by {other}") is None
            store.delete_item(["notes"], "mine")
            assert store.get_item(["notes"], "mine") is None


def test_a_name_in_a_request_is_no_credential(
    client_of: Callable[[str], Any], served: tuple[str, str]
) -> None:
    _, way = served
    client = client_of("eve")
    thread = client.threads.create()["thread_id"]
    pretended = {"configurable": {"user_id": "ada"}}
    if way == "without":
        client.runs.wait(thread, "plain", input=_said("as the owner"))
        return
    with pytest.raises(Exception, match="Denied"):
        client.runs.wait(thread, "plain", input=_said("as ada"), config=pretended)
