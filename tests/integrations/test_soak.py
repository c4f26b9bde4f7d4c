"""Hooks and tools of agents while their servers are killed and started again: what is told as done
is done and there once, what is asked is answered rightly, and no tool runs past rules that nobody
checked. A success is the effect, seen in the tally or in the answer; a call that lost its server on
the way is counted apart, and may have its effect or not, but never twice.

Small in every run of the tests, minutes in `make soak`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.pages import every

from tallystick import Tally
from tallystick.errors import TallystickError
from tallystick.tally import BoundTally
from tallystick_server import RemoteTally

from .mcp_clients import payload
from .test_mcp_processes import parameters
from .test_server_processes import OWNER, process, where

__all__ = ["where"]

_HOOK = [sys.executable, "-m", "tallystick_hooks.command"]
_LEAST = 0.99
"""The share of calls that succeed, of those that did not lose their server on the way."""
_TOLD = "A heron nests at each pier of the harbour."
_RULES = """
[[rules]]
id = "no"
name = "No force"
effect = "deny"
applies_to = "tool_call"
conditions = { tool = ["force_push"] }
"""


class Counts:
    """What was called, by what, and how it ended."""

    def __init__(self) -> None:
        self.done, self.lost, self.failed = Counter[str](), Counter[str](), Counter[str]()
        self._guard = threading.Lock()

    def note(self, what: str, outcome: bool | None) -> None:
        """Note the end of a call: None where its server was lost on the way."""
        place = self.lost if outcome is None else self.done if outcome else self.failed
        with self._guard:
            place[what] += 1

    def is_from_each(self) -> bool:
        """Whether a call of each kind was done."""
        with self._guard:
            return {what.split()[0] for what in self.done} == {"hook", "http", "mcp"}


def _hook(place: Path, event: str, *options: str, **fields: Any) -> tuple[int, str, str]:
    """Answer one event as an agent has it answered: as a process."""
    done = subprocess.run(
        [*_HOOK, event, "--tally", str(place), *options],
        input=json.dumps({"session": "s1", **fields}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def _hooks(
    paths: Sequence[str], place: Path, event: str, *options: str, **fields: Any
) -> tuple[int, list[dict[str, Any]], str]:
    """Answer one event by several paths at once, as a harness runs hooks and a plugin; return the
    highest code, the answers and what was said on standard error.
    """
    with ThreadPoolExecutor(len(paths)) as pool:
        told = [
            pool.submit(_hook, place, event, *options, "--via", path, **fields) for path in paths
        ]
        codes, answers, errors = zip(*(each.result() for each in told), strict=True)
    return max(codes), [json.loads(each) if each else {} for each in answers], "".join(errors)


class Hooks:
    """An agent that is a program, with hooks or with hooks and a plugin at once: every event of its
    session, over and over.
    """

    def __init__(self, paths: Sequence[str], place: Path, rules: Path, counts: Counts) -> None:
        self._name, self._paths = "+".join(paths), paths
        self._place, self._rules, self._counts = place, rules, counts
        self.calls: list[str] = []
        """Ids of tool calls that were told as recorded."""
        self.turns: list[str] = []
        """Texts that were told as kept."""

    def round(self, number: int) -> None:
        """Tell of each event once."""
        place, note, paths = self._place, self._counts.note, self._paths
        for event in ("session-start", "prompt", "after-compact"):
            # What a session has been shown is not shown to it again.
            session = f"{event} {self._name} {number}"
            asked = f"Which heron nests at pier {number}?"
            code, answers, _ = _hooks(paths, place, event, session=session, prompt=asked)
            shown = sum("heron" in answer.get("context", "") for answer in answers)
            note(f"hook {event}", code == 0 and shown == 1)
        for event in ("turn-end", "before-compact", "session-end"):
            text = f"The {event} of {self._name} in round {number} saw a heron."
            turns = [{"speaker": "user", "text": text}]
            session = f"{event} {self._name} {number}"
            code, answers, error = _hooks(paths, place, event, session=session, turns=turns)
            # A server that was killed may have kept the turn: then nothing is stored once more.
            is_kept = code == 0 and not error and not any("error" in each for each in answers)
            is_kept &= sum(each.get("stored", 0) for each in answers) < 2
            note(f"hook {event}", is_kept)
            self.turns += [text] if is_kept else []
        call_id = f"{self._name}-{number}"
        code, _, error = _hooks(paths, place, "after-tool", tool="ls", call_id=call_id, result="ok")
        is_lost = "did not answer" in error
        note("hook after-tool", None if is_lost else code == 0 and not error)
        self.calls += [] if error or code else [call_id]
        # The rules of a file hold whether a server is there or not.
        call = {"tool": "force_push", "call_id": f"force-{self._name}-{number}"}
        code, answers, _ = _hooks(paths, place, "before-tool", "--rules", str(self._rules), **call)
        assert code == 2, "a denied tool ran"
        note("hook before-tool", all(each.get("decision") == "deny" for each in answers))


class OverHttp:
    """An agent whose memory is behind the server's socket: it remembers, and recalls it."""

    def __init__(self, place: Path, counts: Counts) -> None:
        self._socket, self._counts = f"unix:{place / 'serve.sock'}", counts
        self.stored: dict[str, str] = {}
        self.cut_off: list[str] = []

    def round(self, number: int) -> None:
        """Remember and recall until the server is gone, or for a while."""
        if not _listens(self._socket.removeprefix("unix:")):
            time.sleep(0.05)  # between two lives
            return
        try:
            with RemoteTally.connect(self._socket, attempts=1) as remote:
                for turn in range(20):
                    self._call(remote, f"Number {number}-{turn} of http is a heron.")
        except TallystickError:
            return

    def _call(self, remote: RemoteTally, text: str) -> None:
        try:
            self.stored[remote.remember(text, idempotency_key=text).id] = text
        except TallystickError:
            self._counts.note("http remember", None)
            self.cut_off.append(text)
            raise
        self._counts.note("http remember", True)
        try:
            found = [hit.content for hit in remote.recall(text, limit=3)]
        except TallystickError:
            self._counts.note("http recall", None)
            raise
        self._counts.note("http recall", text in found)


class OverMcp:
    """An agent with an MCP server of its own, over standard input: it adds, and searches it. Its
    server is killed between and within calls: in every other life at any moment, else at one after
    its first answer, so that a slow machine answers something too.
    """

    def __init__(self, place: Path, counts: Counts, chance: random.Random) -> None:
        self._place, self._counts, self._chance = place, counts, chance
        self.stored: dict[str, str] = {}

    def round(self, number: int) -> None:
        """Start a server, call its tools, and kill it."""
        asyncio.run(self._session(number))

    async def _session(self, number: int) -> None:
        before = _children()
        try:
            async with Client(parameters(self._place)) as client:
                [server] = _children() - before
                if number % 2 == 0:
                    await self._call(client, f"The first number {number} of mcp is a heron.")
                killer = asyncio.get_running_loop().call_later(
                    self._chance.uniform(0.3, 1.5), _kill, server
                )
                try:
                    for turn in range(400):
                        text = f"Number {number}-{turn} of mcp is a heron."
                        await self._call(client, text)
                        await asyncio.sleep(0.02)  # hooks have a share of the machine
                finally:
                    killer.cancel()
        except (MCPError, OSError, ExceptionGroup):
            return

    async def _call(self, client: Client, text: str) -> None:
        for tool, arguments in (("add", {"content": text}), ("search", {"query": text})):
            try:
                async with asyncio.timeout(20):
                    answered = payload(await client.call_tool(tool, arguments))
            except (MCPError, OSError, TimeoutError, ExceptionGroup):
                self._counts.note(f"mcp {tool}", None)
                raise OSError("The server is gone.") from None
            if tool == "add":
                self.stored[answered["id"]] = text
                self._counts.note("mcp add", answered["status"] == "created")
            else:
                self._counts.note("mcp search", text in json.dumps(answered))


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        return asked.connect_ex(path) == 0


def _children() -> set[int]:
    """The processes that this one started and that are MCP servers."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if int(parent) == os.getpid() and b"mcp" in words:
            found.add(int(folder.name))
    return found


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    # What a client of the SDK leaves open when its server is killed.
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds its servers in /proc")
def test_hooks_and_tools_succeed_while_their_servers_are_killed_and_started_again(
    where: Path,
) -> None:
    is_soak = settings().max_examples > 100
    lives = 40 if is_soak else 3
    chance = random.Random(7)
    rules = where.parent / "rules.toml"
    rules.write_text(_RULES)
    with Tally.open(where, background=False) as tally:
        told = tally.bind(OWNER).remember(_TOLD, pinned=True)
    counts, is_over = Counts(), threading.Event()
    both = (("user-hooks", "user-plugin"), ("user-hooks",))
    hooks = [Hooks(paths, where, rules, counts) for paths in both]
    http, mcp = OverHttp(where, counts), OverMcp(where, counts, chance)
    problems: list[BaseException] = []

    def go_on(round_: Callable[[int], None]) -> None:
        number = 0
        try:
            while not is_over.is_set() or number == 0:
                round_(number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            problems.append(error)
            is_over.set()

    rounds = [*(each.round for each in hooks), http.round, mcp.round]
    callers = [threading.Thread(target=go_on, args=(each,)) for each in rounds]
    for caller in callers:
        caller.start()
    life = 0
    while not is_over.is_set() and (life < lives or not counts.is_from_each()):
        assert life < 10 * lives, f"some callers were never answered: {counts.done}"
        with process(where) as server:
            time.sleep(chance.uniform(1.0, 4.0))
            if life % 3 == 2:
                server.send_signal(signal.SIGTERM)
                server.wait(timeout=60)
            else:
                os.kill(server.pid, signal.SIGKILL)
        time.sleep(chance.uniform(0.0, 1.0))
        life += 1
    is_over.set()
    for caller in callers:
        caller.join()
    assert not problems, problems
    broken = where.parent / "broken"
    broken.write_text("no folder", encoding="utf-8")
    assert _hook(broken, "prompt", prompt="Which heron?")[0] == 0, "a hook stopped the agent"
    assert _hook(broken, "before-tool", "--rules", str(rules), tool="ls")[0] == 2

    # What was cut off is asked for again with its key, and is there once.
    with process(where), RemoteTally.connect(f"unix:{where / 'serve.sock'}") as remote:
        for text in http.cut_off:
            http.stored[remote.remember(text, idempotency_key=text).id] = text
    sys.stderr.write(f"done {counts.done}\nlost {counts.lost}\nfailed {counts.failed}\n")
    assert counts.is_from_each()
    for what in {*counts.done, *counts.failed}:
        share = counts.done[what] / (counts.done[what] + counts.failed[what])
        assert share >= _LEAST, f"{what}: {share:.1%}"
    calls = [call_id for each in hooks for call_id in each.calls]
    with Tally.open(where, background=False) as tally:
        mine = tally.bind(OWNER)
        _require_once(mine, {told.id: _TOLD, **http.stored, **mcp.stored})
        _require_kept(mine, [text for each in hooks for text in each.turns], calls)
        assert all(finding.status != "problem" for finding in mine.operator.doctor())


def _require_once(mine: BoundTally, stored: dict[str, str]) -> None:
    """Require that what was acknowledged is there, and nothing twice."""
    assert len(set(stored.values())) == len(stored)
    for memory_id, text in stored.items():
        assert mine.get(memory_id).content == text
    counted = Counter(memory.content for memory in every(mine.memories))
    assert max(counted.values()) == 1, counted.most_common(3)


def _require_kept(mine: BoundTally, said: list[str], calls: list[str]) -> None:
    """Require that each turn was kept once, and each tool call recorded once."""
    turns = Counter(memory.content for memory in every(mine.memories, kinds=("turn",)))
    assert said
    assert {text: turns[text] for text in said if turns[text] != 1} == {}
    recorded = Counter(
        entry.summary["tool_call_id"]
        for run in mine.recordings.runs_of([mine.scope], limit=100_000)
        for step in mine.recordings.steps(run.id)
        for entry in mine.recordings.entries(step.id)
        if entry.kind == "tool_call"
    )
    assert calls
    assert all(recorded[call_id] == 1 for call_id in calls)
    assert max(recorded.values()) == 1
