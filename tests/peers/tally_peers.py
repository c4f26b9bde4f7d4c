"""A pytest plugin for other projects' suites: it puts our pieces in the place of the official ones.

`run.py` loads it into their own pytest, in their own folder. TALLY_PEERS says what to insert, and
TALLY_PEERS_REPORT names the file for the outcome of each test.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick import Tally

INSERTED = os.environ.get("TALLY_PEERS", "official")
REPORT = os.environ.get("TALLY_PEERS_REPORT")
URL = os.environ.get("TALLY_PEERS_URL")
"""A PostgreSQL server on which tallies are opened, each in a schema of its own."""

SERVER = os.environ.get("TALLY_PEERS_SERVER")
"""The same server for a suite that makes databases of its own on it: a URL that ends with `/`."""

_outcomes: dict[str, str] = {}
_folders: list[Path] = []


@contextmanager
def _tally(**options: Any) -> Iterator[Tally]:
    from tallystick import Actor

    folder = Path(tempfile.mkdtemp(prefix="tally-peers-"))
    _folders.append(folder)
    if URL is not None:
        schema = f"t{folder.name.rpartition('-')[2].lower()}"
        options = {"owner": Actor(user="peer"), "schema": schema, **options}
    with Tally.open(folder / "tally" if URL is None else URL, background=False, **options) as tally:
        yield tally


# LangGraph: the fixtures of its conftest call these


@contextmanager
def _saver(**options: Any) -> Iterator[Any]:
    from tallystick_langgraph import TallySaver

    with _tally() as tally:
        yield TallySaver(tally, **options)


@contextmanager
def _encrypted_saver() -> Iterator[Any]:
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
    with _saver(serde=serde) as saver:
        yield saver


@asynccontextmanager
async def _async_saver() -> AsyncIterator[Any]:
    with _saver() as saver:
        yield saver


@contextmanager
def _store() -> Iterator[Any]:
    from tallystick_langgraph import TallyStore

    with _tally() as tally:
        yield TallyStore(tally)


def _insert_into_langgraph() -> None:
    conftest: Any = sys.modules["tests.conftest"]
    conftest._checkpointer_sqlite = _saver
    conftest._checkpointer_sqlite_aes = _encrypted_saver
    conftest._checkpointer_sqlite_aio = _async_saver
    conftest._store_memory = _store


# The savers' and stores' own suites: their modules name the official classes


class _Both:
    """A block that may be entered with `with` and with `async with`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __enter__(self) -> Any:
        self._block = self._make()
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._block.__exit__(*error)

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self.__exit__(*error)


class OurSaver:
    """`SqliteSaver.from_conn_string` of LangGraph, with a saver of ours."""

    @staticmethod
    def from_conn_string(place: str, **options: Any) -> _Both:
        return _Both(lambda: _saver(**options))


class OurStore:
    """`SqliteStore.from_conn_string` of LangGraph, with a store of ours on the suite's embedder."""

    @staticmethod
    def from_conn_string(place: str, **options: Any) -> _Both:
        return _Both(lambda: OurStore.opened(options))

    @staticmethod
    @contextmanager
    def opened(options: dict[str, Any], *, is_async: bool = False) -> Iterator[Any]:
        from tallystick_langgraph import TallyStore

        index = options.get("index")
        make: Any = _async_store_class() if is_async else TallyStore
        with _tally(embedder=index.get("embed") if index else None) as tally:
            yield make(tally, index=index, ttl=options.get("ttl"))


class OurAsyncStore:
    """Same as OurStore, for `AsyncSqliteStore`."""

    @staticmethod
    def from_conn_string(place: str, **options: Any) -> _Both:
        return _Both(lambda: OurStore.opened(options, is_async=True))


def _opened_for_the_test(block: Any) -> Any:
    """Enter a block that is left when the test under way is over."""
    _of_the_test.append(block)
    return block.__enter__()


_of_the_test: list[Any] = []


class OurPostgresSaver:
    """`PostgresSaver` of LangGraph, made of a connection or a pool: with a saver of ours, on a
    schema of its own.
    """

    def __new__(cls, connection: Any, *_: Any, serde: Any = None, **options: Any) -> Any:
        return _opened_for_the_test(_saver(**({"serde": serde} if serde else {})))

    @staticmethod
    def from_conn_string(place: str, **options: Any) -> _Both:
        serde = options.get("serde")
        return _Both(lambda: _saver(**({"serde": serde} if serde else {})))


class _NoCursor:
    """A cursor for the statements by which a fixture prepares the official tables."""

    def __enter__(self) -> _NoCursor:
        return self

    def __exit__(self, *error: Any) -> None:
        """There is nothing to close."""

    async def __aenter__(self) -> _NoCursor:
        return self

    async def __aexit__(self, *error: Any) -> None:
        """There is nothing to close."""

    def execute(self, *statement: Any) -> _Nothing:
        """There are no such tables."""
        return _Nothing()


class _Nothing:
    """The answer to such a statement, awaited or not."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


def _with_migrations(store_class: Any) -> Any:
    """Return a class of stores with what the fixtures of the PostgreSQL store prepare."""
    own = {"MIGRATIONS": (), "_cursor": lambda self: _NoCursor()}
    return type(store_class.__name__, (store_class,), own)


class _EmbedderHere:
    """The suite's embedder as one that runs here: a tally takes an object of LangChain for one that
    asks elsewhere, whose vectors come by a job.
    """

    local = True

    def __init__(self, index: dict[str, Any]) -> None:
        self._embeddings, self.dimension = index["embed"], index["dims"]
        self.fingerprint = f"peers:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> Any:
        rows = np.array(self._embeddings.embed_documents(list(texts)), dtype=np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(lengths > 0, lengths, 1)


_OF_PGVECTOR = ("ann_index_config", "distance_type")


class OurPostgresStore:
    """`PostgresStore.from_conn_string` of LangGraph, with a store of ours."""

    is_async = False

    @classmethod
    def from_conn_string(cls, place: str, **options: Any) -> _Both:
        return _Both(lambda: cls._opened(options))

    @classmethod
    @contextmanager
    def _opened(cls, options: dict[str, Any]) -> Iterator[Any]:
        from tallystick_langgraph import TallyStore

        index = options.get("index")
        # How pgvector builds its index is not for a store that has none of its own.
        index = {k: v for k, v in index.items() if k not in _OF_PGVECTOR} if index else None
        embedder = _EmbedderHere(index) if index else None
        if index is not None:
            index["embed"] = embedder
        make = _with_migrations(_async_store_class() if cls.is_async else TallyStore)
        with _tally(embedder=embedder) as tally:
            yield make(tally, index=index, ttl=options.get("ttl"))


class OurAsyncPostgresStore(OurPostgresStore):
    """Same as OurPostgresStore, for `AsyncPostgresStore`."""

    is_async = True


def _async_store_class() -> Any:
    """Return TallyStore with the methods awaited that the asynchronous stores of LangGraph have as
    coroutines under the same names.
    """
    from tallystick.aio import in_thread
    from tallystick_langgraph import TallyStore

    class AsyncTallyStore(TallyStore):
        async def sweep_ttl(self) -> int:  # type: ignore[override]
            return await in_thread(super().sweep_ttl)

        async def start_ttl_sweeper(self, interval: float | None = None) -> Any:  # type: ignore[override]
            self._sweeper._sweep = super().sweep_ttl
            return asyncio.wrap_future(super().start_ttl_sweeper(interval))

        async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:  # type: ignore[override]
            return await in_thread(super().stop_ttl_sweeper, timeout)

    return AsyncTallyStore


_OFFICIAL: dict[str, Any] = {
    "SqliteSaver": OurSaver,
    "AsyncSqliteSaver": OurSaver,
    "SqliteStore": OurStore,
    "AsyncSqliteStore": OurAsyncStore,
    "PostgresSaver": OurPostgresSaver,
    "AsyncPostgresSaver": OurPostgresSaver,
    "PostgresStore": OurPostgresStore,
    "AsyncPostgresStore": OurAsyncPostgresStore,
}


def _insert_into_modules(items: list[pytest.Item]) -> None:
    modules = {item.module for item in items if isinstance(item, pytest.Function)}
    for module in modules:
        for name, ours in _OFFICIAL.items():
            if hasattr(module, name):
                setattr(module, name, ours)


# LangChain: an observer of every run, and a middleware of every agent


def _peer(call: Any) -> Any:
    """Return who acts: some tests name a user and the others nobody, which one tally refuses."""
    from tallystick import Actor

    return Actor(user="peer")


def _observe_every_run() -> None:
    from langchain_core.tracers.context import register_configure_hook

    from tallystick_langchain import TallyCallbackHandler

    block = _tally()
    tally = block.__enter__()
    handler: Any = TallyCallbackHandler(tally, actor=_peer)
    observer: ContextVar[Any] = ContextVar("tally_peers_handler", default=handler)
    register_configure_hook(observer, inheritable=True)
    _closing.append((block, handler))


_closing: list[tuple[Any, Any]] = []


def _add_to_every_agent(make: Callable[[], Any]) -> None:
    import langchain.agents
    from langchain.agents import factory

    create = factory.create_agent

    @wraps(create)
    def create_agent(*args: Any, **options: Any) -> Any:
        options["middleware"] = [*options.get("middleware", ()), make()]
        return create(*args, **options)

    for module in (factory, langchain.agents):
        module.create_agent = create_agent  # type: ignore[attr-defined]


def _noop_middleware() -> Any:
    """Return a middleware with the hooks of ours that does nothing: what it changes is a property
    of LangChain.
    """
    from langchain.agents.middleware import AgentMiddleware

    class Noop(AgentMiddleware[Any, Any, Any]):
        def before_agent(self, state: Any, runtime: Any) -> None:
            return None

        async def abefore_agent(self, state: Any, runtime: Any) -> None:
            return None

        def after_agent(self, state: Any, runtime: Any) -> None:
            return None

        async def aafter_agent(self, state: Any, runtime: Any) -> None:
            return None

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

    # A name of the same kind, as it stands in the drawings of a graph.
    Noop.__name__ = "TallyMiddleware"
    return Noop()


def _add_middleware() -> None:
    from tallystick_langchain import TallyMiddleware

    block = _tally()
    tally = block.__enter__()
    _closing.append((block, None))
    _add_to_every_agent(lambda: TallyMiddleware(tally, actor=_peer))


# The OpenAI Agents SDK: its session in a file, and the runner behind `Runner`


def _session_class() -> Any:
    """Return a class that is made as `SQLiteSession` is, with a session of ours in its place: those
    of one file are on one tally.
    """
    from tallystick_openai_agents import TallySession

    tallies: dict[str, Any] = {}

    def tally_of(place: str) -> Any:
        if place == ":memory:" or place not in tallies:
            tallies[place] = _opened_for_the_test(_tally())
            _forget_after_the_test.append(tallies.clear)
        return tallies[place]

    class OurSession(TallySession):
        def __init__(self, session_id: str, db_path: Any = ":memory:", **options: Any) -> None:
            settings = options.get("session_settings")
            tally = tally_of(str(db_path))
            super().__init__(tally, session_id, actor=_peer, session_settings=settings)

        def close(self) -> None:
            """Do nothing: the tally of the test is closed with it."""

    return OurSession


_forget_after_the_test: list[Callable[[], None]] = []


def _open_a_runner() -> None:
    from tallystick_openai_agents import TallyRunner

    block = _tally()
    _closing.append((block, TallyRunner(block.__enter__(), actor=_peer)))


def pytest_runtest_call(item: pytest.Item) -> None:
    """Put our runner behind `Runner`, where a fixture of theirs has put its own."""
    if INSERTED == "runner":
        from agents.run import set_default_agent_runner

        set_default_agent_runner(_closing[-1][1])


# Hooks of pytest


def pytest_configure(config: pytest.Config) -> None:
    """Insert what has to be there before a test module is imported."""
    if INSERTED == "handler":
        _observe_every_run()
    elif INSERTED == "middleware":
        _add_middleware()
    elif INSERTED == "runner":
        _open_a_runner()
    elif INSERTED == "noop":
        _add_to_every_agent(_noop_middleware)


def pytest_plugin_registered(plugin: Any) -> None:
    """Give a suite's conftest the server in the place of the one that it expects on a port."""
    if SERVER is not None and hasattr(plugin, "DEFAULT_POSTGRES_URI"):
        plugin.DEFAULT_POSTGRES_URI = SERVER
        plugin.DEFAULT_URI = f"{SERVER}postgres?sslmode=disable"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Close what a test opened without a block of its own."""
    while _forget_after_the_test:
        _forget_after_the_test.pop()()
    while _of_the_test:
        _of_the_test.pop().__exit__(None, None, None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Insert what the suite names in its own modules, and leave out what uses no such piece."""
    fixtures = set(filter(None, os.environ.get("TALLY_PEERS_FIXTURES", "").split(",")))
    if fixtures:
        used = [item for item in items if _uses(item, fixtures)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(used)])
        items[:] = used
    if INSERTED == "fixtures":
        _insert_into_langgraph()
    elif INSERTED == "modules":
        _insert_into_modules(items)
    elif INSERTED == "sessions":
        _OFFICIAL.clear()
        _OFFICIAL["SQLiteSession"] = _session_class()
        _insert_into_modules(items)


def _uses(item: pytest.Item, fixtures: set[str]) -> bool:
    """Return True if a test uses such a fixture, and with more than memory behind it."""
    own = set(getattr(item, "fixturenames", ())) & fixtures
    callspec = getattr(item, "callspec", None)
    values = {callspec.params.get(name) for name in own} if callspec is not None else set()
    return bool(own) and not values <= {"memory", "memory_migrate_sends"}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of a test's three phases."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.skipped:
        _outcomes.setdefault(report.nodeid, "skipped")
    elif report.when == "call":
        _outcomes.setdefault(report.nodeid, "passed")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes; close what was opened for all tests."""
    lost = 0
    for block, handler in _closing:
        lost += 0 if handler is None else handler.failures
        block.__exit__(None, None, None)
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    if REPORT is None:
        return
    # Each process observes its own tests, and the first of them gets the outcomes of all.
    worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
    Path(f"{REPORT}.lost-{worker}").write_text(str(lost))
    if worker == "main":
        Path(REPORT).write_text(json.dumps({"outcomes": _outcomes}))
