"""Roles of PostgreSQL: one owns the tables, one works with them, one reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url
from tests.servers import own_postgres

from tallystick import Actor, Tally
from tallystick.errors import ReadOnlyTally, StorageError
from tallystick.storage.engine import migrate
from tallystick.testing import HashEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]
OPERATOR = Actor(user="ada", role="operator")
SECRET = "The heron nests in the alder of 1871."


class Server(NamedTuple):
    """A server with an empty database; the address as each role, and a connection as superuser."""

    owner: str
    app: str
    reader: str
    administrator: psycopg.Connection[Any]
    folder: Path


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_postgres() as running:
        url = running.get_uri()
        with psycopg.connect(url, autocommit=True) as administrator:
            names = ("owner", "app", "reader")
            for name in names:
                administrator.execute(
                    sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(f"tally_{name}"))
                )
            administrator.execute("CREATE DATABASE roles OWNER tally_owner")
            urls = [make_url(url).set(database="roles", username=f"tally_{n}") for n in names]
            owner, app, reader = (each.render_as_string(False) for each in urls)
            yield Server(owner, app, reader, administrator, Path(running.pgdata))


@pytest.fixture
def schema(server: Server) -> str:
    """A tally that its owner made, and its grants."""
    schema = f"t{uuid.uuid4().hex}"
    with _open(server.owner, schema) as tally:
        tally.bind(OPERATOR).remember("The owl nests in April.")
    with psycopg.connect(server.owner, autocommit=True) as owner:
        owner.execute(migrate.grants(schema, "tally_app").encode())
        owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO tally_reader".encode())
        owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO tally_reader".encode())
    return schema


def _open(url: str, schema: str) -> Tally:
    return Tally.open(url, schema=schema, background=False, embedder=HashEmbedder())


def test_a_role_without_create_works_in_a_tally_that_another_role_made(
    server: Server, schema: str
) -> None:
    with _open(server.app, schema) as tally:
        bound = tally.bind(OPERATOR)
        bound.remember("The wren nests in May.")
        with bound.run("walker") as run, run.step("model_call") as step:
            step.record("request", {"prompt": "wren"})
        assert bound.recordings.verify(run.id).ok
        assert len(bound.recall("nests")) == 2
        assert tally.read_only is None
        tally.drain()
        findings = bound.operator.doctor()
        assert all(each.status != "problem" for each in findings)
        database = next(each.text for each in findings if each.check == "database")
        assert "as tally_app, which may not make tables" in database


def test_a_role_that_may_only_select_reads(server: Server, schema: str) -> None:
    with _open(server.reader, schema) as tally:
        assert tally.read_only == ReadOnlyTally("no_grant").cause
        assert [hit.content for hit in tally.bind(OPERATOR).recall("owl")] == [
            "The owl nests in April."
        ]
        with pytest.raises(ReadOnlyTally, match="--grants"):
            tally.bind(OPERATOR).remember("The wren nests in May.")


def test_a_role_without_any_right_is_told_which_it_lacks(server: Server) -> None:
    for schema in (f"t{uuid.uuid4().hex}", "tally_of_nobody"):
        if schema == "tally_of_nobody":
            with _open(server.owner, schema):
                pass
        with pytest.raises(StorageError, match="--grants"):
            _open(server.app, schema)


def _files_with(server: Server, text: str) -> int:
    server.administrator.execute("CHECKPOINT")
    return sum(
        text.encode() in file.read_bytes()
        for file in server.folder.glob("base/*/*")
        if file.is_file()
    )


def test_an_erasure_by_a_role_that_may_not_rewrite_the_tables_says_so(
    server: Server, schema: str
) -> None:
    with _open(server.app, schema) as tally:
        bound = tally.bind(OPERATOR)
        memory = bound.remember(SECRET)
        assert _files_with(server, SECRET) > 0
        preview = bound.operator.erase([memory.id], reason="asked for")
        with pytest.raises(StorageError, match="not yet from their files"):
            bound.operator.erase(
                [memory.id],
                mode="apply",
                reason="asked for",
                confirm_token=preview.confirm_token,
            )
        assert not bound.operator.prove_erased(memory.id).holds
        assert _files_with(server, SECRET) > 0
    with _open(server.owner, schema) as tally:
        # Which the owner does where it opens it next.
        assert tally.bind(OPERATOR).operator.prove_erased(memory.id).holds
        assert _files_with(server, SECRET) == 0


def test_an_erasure_by_the_owner_leaves_the_text_in_no_file(server: Server) -> None:
    with _open(server.owner, f"t{uuid.uuid4().hex}") as tally:
        bound = tally.bind(OPERATOR)
        memory = bound.remember(SECRET)
        for _ in range(2):
            preview = bound.operator.erase([memory.id], reason="asked for")
            token = preview.confirm_token
            bound.operator.erase([memory.id], mode="apply", reason="asked for", confirm_token=token)
            assert _files_with(server, SECRET) == 0
            memory = bound.remember(SECRET)
