"""Fixtures of all tests: real stores on SQLite and PostgreSQL, and nothing that phones home."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import sqlite3
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from hypothesis import HealthCheck, settings
from tests.servers import own_postgres

for _name, _value in {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
}.items():
    os.environ[_name] = _value

# Nothing that a busy machine could change: no deadlines, and the same examples on every run.
settings.register_profile(
    "tallystick",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak", settings.get_profile("tallystick"), derandomize=False, max_examples=2_000
)
settings.load_profile("tallystick")

# Python looks for garbage after each 700 new objects; thousands of short tests make little of it.
gc.set_threshold(50_000)


_ON_POSTGRES = os.environ.get("TESTS_ON") == "postgres"
"""True under `make test-postgres`: the whole suite, with PostgreSQL where a test takes either."""


_ON_BOTH = (
    "tests/core/storage",
    "tests/core/upkeep/test_backup.py",
    "tests/core/upkeep/test_erase_places.py",
    "tests/core/upkeep/test_erase_user.py",
    "tests/core/upkeep/test_merging.py",
    "tests/core/upkeep/test_erase.py::test_erasing_leaves_no_byte_in_any_table_or_file",
    "tests/core/testing",
    "tests/core/tally/test_tally_contract.py",
    "tests/core/memory/test_contradictions.py",
    "tests/core/memory/test_isolation.py",
    "tests/core/memory/test_large_scopes.py",
    "tests/core/memory/test_memory_machine.py",
    "tests/core/memory/test_memory_faults.py",
    "tests/core/memory/test_recall.py",
    "tests/core/jobs/test_jobs.py",
    "tests/core/recorder/test_taken_for_dead.py",
    "tests/core/recorder/test_old_recordings.py",
    "tests/checkpointers/test_saver_contract.py",
    "tests/checkpointers/test_conformance.py",
)
"""Contract suites, and what differs between the databases: these run on PostgreSQL in `make test`
too, the others in `make test-postgres`.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes too long for each commit to `make soak`, and tests that are the same on
    PostgreSQL to `make test-postgres`.
    """
    left = {item for item in items if not _ON_POSTGRES and _is_the_same_on_postgres(item)}
    if settings().max_examples <= 100:
        left |= {item for item in items if item.get_closest_marker("soak") is not None}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


_ON_EITHER = ("tests/core/storage/rows/test_objects.py",)
"""What has places of its own, each of which needs no second database here."""


def _is_the_same_on_postgres(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    name = item.nodeid
    on_both = name.startswith(_ON_BOTH) and not name.startswith(_ON_EITHER)
    return parameters.get("open_tally") == "postgres" and not on_both


@pytest.fixture(autouse=True)
def _close_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the event loops that a synchronous test uses.

    `run_sync` of PydanticAI and of OpenAI's agents makes a loop where the thread has none, as after
    an `asyncio.run`, and nobody closes it. The collector then finds it in whichever test runs
    later, and formatting the warning parses source: inside `ast.parse` that ends in a SystemError
    on CPython 3.11.
    """
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    with suppress(RuntimeError):  # there is none after an `asyncio.run`
        asyncio.get_event_loop_policy().get_event_loop().close()
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture(scope="session", autouse=True)
def _read_certificates_once() -> Iterator[None]:
    """Let clients of one process share the certificates, which each would read anew."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((ssl, "create_default_context"), (httpcore2, "default_ssl_context")):
            patch.setattr(module, name, functools.cache(getattr(module, name)))
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of the tests' own."""
    # Some suites keep more tallies open at once than a hundred connections are enough for.
    with own_postgres(connections=400 if _ON_POSTGRES else None) as server:
        yield server.get_uri()


@pytest.fixture(scope="session")
def empty_tally(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tally that holds nothing."""
    from tallystick import Tally

    folder = tmp_path_factory.mktemp("empty") / "tally"
    Tally.open(folder, background=False).close()
    with sqlite3.connect(folder / "tally.db") as connection:
        # Who opens a copy first is its owner.
        connection.execute("DELETE FROM settings WHERE name = 'owner'")
    connection.close()
    return folder


@pytest.fixture(scope="session")
def _database(postgres_url: str) -> Iterator[Any]:
    from tests.servers import EmptyTally

    database = EmptyTally(postgres_url)
    yield database
    database.close()


@pytest.fixture
def database(_database: Any) -> str:
    """The address of a database with a tally that holds nothing, which no other test uses
    meanwhile.
    """
    return str(_database.emptied())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_tally(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Opens a fresh store at first and the same store afterwards, once per database."""
    from tests.openers import opener

    return opener(request.param, request)


@pytest.fixture
def open_sqlite(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Same as `open_tally`, on SQLite alone for speed; on PostgreSQL alone under `make
    test-postgres`, but for tests that are about the folder or the file.
    """
    from tests.openers import opener

    from tallystick import Actor

    if not _ON_POSTGRES or request.node.get_closest_marker("sqlite") is not None:
        return opener("sqlite", request)
    # A folder has an owner of its own accord.
    return opener("postgres", request, owner=Actor(user="local", role="operator"))
