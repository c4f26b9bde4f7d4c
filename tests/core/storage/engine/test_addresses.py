"""Addresses of PostgreSQL: each form of its own library is understood or refused, none is taken for
a folder, and no password is shown.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import make_url
from tests.terminals import run_piped

from tallystick import Actor, Tally
from tallystick.errors import BusyTally, InvalidInput, StorageError, TallyNotFound
from tallystick.storage import Location
from tallystick.storage.engine.database_errors import translate, was_lost
from tallystick.storage.engine.location import in_schema

ADA = Actor(user="ada")
SECRET = "s3cret p@ss:w/rd%?#é"
QUOTED = "s3cret%20p%40ss%3Aw%2Frd%25%3F%23%C3%A9"


def _parts(where: str) -> dict[str, Any]:
    url = Location.find(where).url
    names = ("username", "password", "host", "port", "database")
    parts = {name: getattr(url, name) for name in names}
    return {name: value for name, value in (parts | dict(url.query)).items() if value is not None}


UNDERSTOOD = {
    f"postgresql://ada:{QUOTED}@db:5433/tally?sslmode=require": {
        "username": "ada",
        "password": SECRET,
        "host": "db",
        "port": 5433,
        "database": "tally",
        "sslmode": "require",
    },
    f"host=db port=5433 dbname=tally user=ada password='{SECRET}'": {
        "username": "ada",
        "password": SECRET,
        "host": "db",
        "port": 5433,
        "database": "tally",
    },
    "postgres://ada@h1:5432,h2:5433/tally?target_session_attrs=read-write": {
        "username": "ada",
        "host": "h1,h2",
        "port": "5432,5433",
        "database": "tally",
        "target_session_attrs": "read-write",
    },
    "postgresql+asyncpg://db/tally?options=-c%20statement_timeout%3D5s": {
        "host": "db",
        "database": "tally",
        "options": "-c statement_timeout=5s",
    },
    "postgresql:///tally?host=/var/run/postgresql&password=s3cret": {
        "password": "s3cret",
        "host": "/var/run/postgresql",
        "database": "tally",
    },
    "postgresql://[::1]:5432/tally": {"host": "::1", "port": 5432, "database": "tally"},
    "service=tally": {"service": "tally"},
    "postgresql://ada:s3cret?schema=x@db/tally": {
        "username": "ada",
        "password": "s3cret?schema=x",
        "host": "db",
        "database": "tally",
    },
}


@pytest.mark.parametrize("where", UNDERSTOOD)
def test_each_form_of_the_library_is_understood(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _parts(where) == UNDERSTOOD[where]
    assert "s3cret" not in str(Location.find(where))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://ada:s3cret@x@db/tally",
        "postgresql://ada:s3cret/x@db/tally",
        "postgresql://ada:s3cret%zz@db/tally",
        "postgresql://ada:s3cret x@db/tally",
        "postgresql://ada:s3cret@db:port/tally",
        "postgresql://ada:s3cret@db/tally?pgbouncer=true",
        "postgresql://ada:s3cret@db/tally?prepare_threshold=0",
        "host=db password='s3cret",
        "dbname=tally password=s3cret colour=red",
        "mysql://ada:s3cret@db/tally",
    ],
)
def test_what_is_not_understood_is_refused_without_its_password(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for opened in (Tally.open, lambda each: Tally.open(each, create=False)):
        with pytest.raises(InvalidInput, match="postgresql://") as refused:
            opened(where)
        link: BaseException | None = refused.value
        while link is not None:
            assert "s3cret" not in str(link)
            link = link.__cause__
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_no_schema(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has a schema"):
        in_schema(str(tmp_path), "apollo")
    with pytest.raises(InvalidInput, match="Name one"):
        Location.find("postgresql://db/tally?schema=apollo", schema="gemini")


def _libpq(url: str, **further: str) -> str:
    target = make_url(url)
    host = parse_qs(urlsplit(url).query)["host"][0]
    return make_conninfo(host=host, user=target.username, dbname=target.database, **further)


@pytest.mark.postgres
def test_the_command_line_works_in_a_schema_and_shows_no_password(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By --schema, by the address, and by each form of it."""
    monkeypatch.chdir(tmp_path)
    schema = f"t{uuid.uuid4().hex}"
    where = _libpq(postgres_url, password="s3cret")

    def told(*words: str, code: int = 0) -> str:
        code_then, *output = run_piped("--as", "ada", *words)
        assert code_then == code, (words, output)
        assert "s3cret" not in f"{output}", words
        return f"{output}"

    place = ("--tally", where, "--schema", schema)
    assert "tally init" in told("recall", "heron", *place, code=2)
    with Tally.open(where, schema=schema, background=False) as tally:
        assert "s3cret" not in tally.location
    told("remember", "The heron nests in March.", *place)
    assert "March" in told("recall", "heron", *place)
    assert "March" in told("recall", "heron", "--tally", in_schema(where, schema))
    told("doctor", *place)
    told("backup", "copy", *place)
    told("restore", "copy", "--tally", where, "--schema", f"{schema}_copy")
    assert "March" in told("recall", "heron", "--tally", where, "--schema", f"{schema}_copy")
    assert f'GRANT USAGE ON SCHEMA "{schema}"' in told("migrate", "--grants", "app", *place)
    assert "--schema" in told("serve", "--help")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy"]


@pytest.mark.postgres
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_another_encoding_is_refused_when_the_tally_is_opened(
    postgres_url: str, encoding: str
) -> None:
    name = f"d{uuid.uuid4().hex}"
    making = "CREATE DATABASE {} ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL(making).format(sql.Identifier(name), sql.Literal(encoding)))
    url = make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    with pytest.raises(InvalidInput, match=f"as {encoding}.*ENCODING 'UTF8'"):
        Tally.open(url, background=False)


def test_errors_are_told_apart_by_their_code_in_any_language() -> None:
    full = psycopg.errors.TooManyConnections("tut mir leid, schon zu viele Verbindungen")
    assert isinstance(translate(full), BusyTally)
    assert not was_lost(full)
    for error in (
        psycopg.errors.InvalidPassword("Passwort-Authentifizierung fehlgeschlagen"),
        psycopg.errors.InvalidCatalogName("Datenbank existiert nicht"),
        psycopg.errors.InvalidAuthorizationSpecification("keine Zugriffsberechtigung"),
    ):
        assert not was_lost(error)
        told = str(translate(error))
        assert "statement" not in told, told
        assert str(error.sqlstate) in told
    assert was_lost(psycopg.errors.AdminShutdown("breche Verbindung ab"))


@pytest.mark.postgres
def test_what_cannot_be_connected_to_is_told_in_our_words(postgres_url: str) -> None:
    nowhere = make_url(postgres_url).set(database="nowhere").render_as_string(False)
    with pytest.raises(StorageError, match="3D000") as refused:
        Tally.open(nowhere, background=False)
    assert "statement" not in str(refused.value)
    with pytest.raises(TallyNotFound):
        Tally.open(f"{postgres_url}&schema=nowhere", create=False)
