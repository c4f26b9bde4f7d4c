"""Memory as files over MCP: the same tree as the memory tool's, read by address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from tests.integrations.mcp_clients import ERAS, connected

from tallystick.records import Actor, PolicyConditions, PolicyRule
from tallystick.tally import MemoryTree, Tally
from tallystick_mcp import serve

ANN = Actor(user="ann", projects={"apollo"})
BOB = Actor(user="bob", projects={"secret"})
ROOT = "tally://files/memories"


@pytest.fixture(params=ERAS)
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def tally(tmp_path: Path) -> Iterator[Tally]:
    with Tally.open(tmp_path / "tally", background=False) as tally:
        tally.bind(ANN).remember("We indent with tabs.", kind="preference")
        MemoryTree(tally.bind(ANN)).create("/memories/notes/a b.xml", "<a>\n\n  <b/>\n</a>\n")
        apollo = tally.bind(ANN, scope="project:apollo")
        apollo.remember("Ship in May.", kind="decision")
        MemoryTree(tally.bind(BOB)).create("/memories/projects/secret/a.txt", "not for ann")
        MemoryTree(tally.bind(BOB)).create("/memories/bob.txt", "not for ann")
        yield tally


async def text_at(client: Any, address: str) -> str:
    [content] = (await client.read_resource(address)).contents
    return str(content.text)


async def test_a_client_lists_the_root_and_reads_folders_and_files(tally: Tally, mode: str) -> None:
    async with connected(serve(tally, actor=ANN), mode) as client:
        [listed] = (await client.list_resources()).resources
        root = await text_at(client, str(listed.uri))
        view = await text_at(client, f"{ROOT}/preferences.md")
        file = await text_at(client, f"{ROOT}/notes/a%20b.xml")
        project = await text_at(client, f"{ROOT}/projects/apollo/decisions.md")

    tree = MemoryTree(tally.bind(ANN))
    assert root.startswith(tree.view("/memories"))
    assert view.startswith(tree.view("/memories/preferences.md"))
    assert file.startswith(tree.view("/memories/notes/a b.xml"))
    assert "Ship in May." in project
    assert "not for ann" not in root
    assert "bob" not in root
    assert "secret" not in root


@pytest.mark.parametrize(
    "address",
    [
        f"{ROOT}/none.txt",
        f"{ROOT}/bob.txt",
        f"{ROOT}/projects/secret",
        f"{ROOT}/projects/secret/a.txt",
        f"{ROOT}/projects/absent/a.txt",
        f"{ROOT}/../etc/passwd",
        f"{ROOT}/%2e%2e/a",
        f"{ROOT}/a%00b",
        "tally://files/etc/passwd",
        "tally://files//etc/passwd",
    ],
)
async def test_an_address_outside_of_the_tree_gives_nothing(
    tally: Tally, mode: str, address: str
) -> None:
    async with connected(serve(tally, actor=ANN), mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(address)

    assert "not for ann" not in str(refused.value)


async def test_a_server_within_a_boundary_shows_no_other_files(tally: Tally, mode: str) -> None:
    async with connected(serve(tally, actor=ANN, scopes=["project:apollo"]), mode) as client:
        root = await text_at(client, ROOT)
        with pytest.raises(MCPError, match="does not exist"):
            await client.read_resource(f"{ROOT}/preferences.md")
        decisions = await text_at(client, f"{ROOT}/projects/apollo/decisions.md")

    assert "notes" not in root
    assert "preferences" not in root
    assert "projects/apollo/" in root
    assert "Ship in May." in decisions


async def test_a_rule_over_reading_holds_for_files(tmp_path: Path, mode: str) -> None:
    rule = PolicyRule(
        id="no-reading",
        name="Nothing is read",
        effect="deny",
        applies_to="tool_call",
        conditions=PolicyConditions(tool=("memory_get", "memory_list")),
    )
    with Tally.open(tmp_path / "tally", background=False, rules=[rule]) as tally:
        MemoryTree(tally.bind(ANN)).create("/memories/a.txt", "x")
        async with connected(serve(tally, actor=ANN), mode) as client:
            for address in (ROOT, f"{ROOT}/a.txt"):
                with pytest.raises(MCPError, match="Nothing is read"):
                    await client.read_resource(address)
