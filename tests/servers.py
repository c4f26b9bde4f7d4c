"""Servers of the tests' own, on the loopback: Chroma's, one of S3, and a database in the server
that tests share.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

__all__ = ["chroma_server", "new_database", "s3_server"]


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
