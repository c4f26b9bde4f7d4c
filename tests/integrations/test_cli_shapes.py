"""The JSON of every command keeps its names and types: a field that is renamed fails here.

`make test ARGS="tests/integrations/test_cli_shapes.py --inline-snapshot=fix"` writes new ones.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import external_file
from tests.integrations.cli_tally import fill
from tests.terminals import run_at_terminal, run_piped

from tallystick import Tally
from tallystick.recorder.ledger import appending
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import ScriptedLearner
from tallystick.upkeep.retention import enqueue_retention
from tallystick_cli.app import GROUPS

_OPEN = frozenset({"payload", "metadata", "attributes", "summary", "recipe", "request", "facts"})
"""Fields whose content belongs to a runtime, or to a record that is shown elsewhere."""


def shape_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields in a value, each with its type: lists as what is in them."""
    if isinstance(value, dict) and path.rpartition(".")[2] not in _OPEN:
        if not value:
            yield path, "object"
        for name, each in value.items():
            yield from shape_of(each, f"{path}.{name}")
    elif isinstance(value, list):
        if not value:
            yield path, "array"
        for each in value:
            yield from shape_of(each, f"{path}[]")
    else:
        yield path, _type_of(value)


def _type_of(value: Any) -> str:
    names = {dict: "object", str: "string", int: "integer", float: "number", bool: "boolean"}
    return "null" if value is None else names[type(value)]


def test_the_json_of_every_command_keeps_its_names_and_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = fill(tmp_path / "tally")
    ids, where = filled.ids, ("--tally", str(filled.place))
    reason = ("--reason", "a test")
    shapes: dict[str, dict[str, str]] = {}

    def took(output: str, command: str) -> Any:
        answer = json.loads(output)
        types: dict[str, set[str]] = {}
        for path, kind in shape_of(answer):
            types.setdefault(path, set()).add(kind)
        shapes[command] = {path: " or ".join(sorted(types[path])) for path in sorted(types)}
        return answer

    def run(command: str, *arguments: str, piped: str = "") -> Any:
        code, output, errors = run_piped(command, *arguments, *where, "--json", piped=piped)
        assert (code, errors) == (0, ""), (command, output)
        return took(output, command)

    _, output, _ = run_piped("init", "--tally", str(tmp_path / "new"), "--json")
    took(output, "init")
    kiln = run("remember", "The kiln is hot.")["id"]
    run("recall", "how is money rounded")
    run("memories", "--scope", "project:apollo")
    run("explore", "project:apollo")
    run("wake", "--scope", "project:apollo")
    run("pack", "how is money rounded")
    run("inspect", ids["fact"])
    run("modify", ids["fact"], "--tag", "money", "--tag", "invoices", *reason)
    run("correct", ids["old"], "mark_stale", *reason)
    run("forget", ids["old"], *reason)
    run("prove", ids["old"])
    run("recover", ids["old"], *reason)
    run("history", ids["old"])
    run("working", "set", "plan", '["mend it"]', "--thread", "chat-7")
    run("working", "get", "plan", "--thread", "chat-7")
    run("working", "drop", "plan", "--thread", "chat-7")
    run("working", "set", "plan", "mend it", "--thread", "chat-7")
    run("working", "list", "--thread", "chat-7")
    task = run("remember", "Mend the boat.", "--kind", "task", "--attribute", "priority=high")["id"]
    run("link", task)
    run("task", "start", task, "--assignee", "ann")
    run("task", "list")
    plan = run("remember", "Sail.", "--kind", "plan", "--attribute", 'steps=["Rig."]')["id"]
    run("plan", plan, "--number", "1")
    with Tally.open(filled.place, settings=Settings(graph=True), background=False) as tally:
        tally.bind().remember("A heron (HRN) and an egret.", entities=("heron", "HRN", "egret"))
        tally.drain()
    run("aliases")
    run("keep-apart", "heron", "egret", *reason)
    document = run("synthesize", "plan", "the heron")["id"]
    run("synthesize", "sections", document)
    run("synthesize", "draft", document)
    run("synthesize", "verify", document)
    run("synthesize", "remember", document)
    run("synthesize", "show", document)
    run("synthesize", "list")
    run("space", "team:core", "--member", "user:local=steward", *reason)
    run("promote", kiln, "project:apollo", *reason)
    run("share", kiln, "project:apollo", *reason)
    run("spaces")
    run("token", "make", "laptop")
    run("token", "list")
    run("preview-agent", "bob", "--agent", "coder")
    run("runs")
    run("show", ids["first"])
    run("why", ids["second"])
    run("trace", ids["first"], "nearest rappen")
    run("uses", ids["fact"])
    run("diff", ids["first"], ids["second"])
    run("recompile", ids["first"], "--drop", ids["fact"])
    run("verify", ids["run"])
    run("receipt", ids["run"])
    birds = tmp_path / "birds"
    birds.mkdir()
    (birds / "heron.md").write_text("## Herons\n\nThe heron nests in March.")
    monkeypatch.setenv("TALLYSTICK_SOURCES", '{"folder": "tests.core.ingest.folder_source:Folder"}')
    run("source-import", "start", str(birds), "--adapter", "folder")
    run("document")
    run("health")
    run("alerts")
    run("metrics")
    run("events", "--after", "0", "--limit", "5")
    run("timeline", kiln)
    run("repair", "check", *reason)
    run("rollback", "none", *reason)
    run("take-back", "--by-actor", "nobody", "--since", "2020-01-01", *reason)
    run("backfill", "embed", *reason)
    run("resume-autonomy", *reason)
    run("compare", "start", "--candidate", "vector_search=exact", *reason)
    run("analytics", "usage")
    monkeypatch.delenv("TALLYSTICK_SOURCES")
    foreign = tmp_path / "foreign.jsonl"
    run("export-to", "jsonl", str(foreign))
    run("import-from", "jsonl", str(foreign), "--only", "*")
    run("export-receipt", ids["run"], "--out", str(tmp_path / "receipt"))
    run("tape", ids["run"], "--out", str(tmp_path / "tape.json"))
    _, output, _ = run_piped("keygen", str(tmp_path / "key"), "--json")
    took(output, "keygen")
    with appending(tmp_path / "evidence" / "ledger.jsonl") as ledger:
        ledger.append("decision", by="local", details={"verdict": "hold"})
    _, output, _ = run_piped("evidence", "verify", str(tmp_path / "evidence"), "--json")
    took(output, "evidence")
    run("mcp", "install", "cursor", "--show", "--scope", "user")
    run("hook", "install", "--show", "--scope", "user")
    monkeypatch.setenv("TALLYSTICK_LEARNING_MODEL", "pydantic-ai:test")
    monkeypatch.setenv("TALLYSTICK_REMOTE_ALLOW", '["pydantic-ai:test"]')
    monkeypatch.setenv("TALLYSTICK_REFLECTION", "review")
    said = "We decided to keep the boats in the north harbour."
    run("remember", said, "--conversation", "harbour")
    run("reflect", "--conversation", "harbour")
    run("reviews")
    code, output, _ = run_at_terminal("accept\nso it is\n", "review", *where, "--json")
    assert code == 0, output
    took(output, "review")
    for name in ("LEARNING_MODEL", "REMOTE_ALLOW", "REFLECTION"):
        monkeypatch.delenv(f"TALLYSTICK_{name}")
    run("approvals")
    for verb, name in (("approve", "approval"), ("revoke", "approval"), ("deny", "other")):
        code, output, _ = run_at_terminal(verb, verb, ids[name], *reason, *where, "--json")
        assert code == 0, output
        took(output, verb)
    run("state", "billing")
    run("verify-threads")
    source = sqlite3.connect(tmp_path / "checkpoints.sqlite")
    source.executescript(_OF_A_SAVER)
    source.close()
    run("import-checkpoints", str(tmp_path / "checkpoints.sqlite"))
    run("doctor")
    with Tally.open(filled.place, background=False) as tally:
        enqueue_retention(services_of(tally).memory)
        tally.drain()
    # A model of somebody's own, under a name that is far away.
    with Tally.open(
        filled.place,
        learning_model=ScriptedLearner({}, name="far", local=False),
        settings=Settings(learning="review"),
        background=False,
    ) as tally:
        tally.bind().remember("The harbour master is called Sigurd.", mode="sync")
    run("jobs")
    run("outbound")
    run("purge")
    run("erase", ids["old"], *reason)
    run("erase-user", "local", *reason)
    run("export", str(tmp_path / "export"))
    run("backup", str(tmp_path / "backup"))
    _, output, _ = run_piped(
        "restore", str(tmp_path / "backup"), "--tally", str(tmp_path / "restored"), "--json"
    )
    took(output, "restore")
    run("migrate", "--plan")
    run("reembed")
    run("rebuild-index", "--reason", "r")
    run("freeze", *reason)
    run("thaw", *reason)
    _, output, _ = run_piped(
        "import", str(tmp_path / "export"), "--tally", str(tmp_path / "other"), "--json"
    )
    took(output, "import")

    without = {"help", "trust", "worker", "serve", "ui"}
    assert set(shapes) == {name for names in GROUPS.values() for name in names} - without
    assert shapes == external_file("../fixtures/cli_shapes.json")


_OF_A_SAVER = """
CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB);
CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT,
    idx INTEGER, channel TEXT, type TEXT, value BLOB);
"""
