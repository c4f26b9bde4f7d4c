"""docs/deploying.md: each test that it names is there; what no other test tries is tried here."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import psycopg
import pytest

from tallystick import Actor, Tally
from tallystick.errors import StorageError
from tallystick.settings import Settings

ROOT = Path(__file__).parents[4]
ADA = Actor(user="ada")


def test_each_test_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    there = {
        name
        for file in (ROOT / "tests" / "core").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    assert named - there == set()
    assert len(named) > 15


def test_the_page_has_the_budget_of_the_settings() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert f"| `readers` ({Settings.read().readers}) |" in page
    assert "nine a process by default" in page


@pytest.mark.postgres
def test_a_statement_that_takes_too_long_is_refused_and_undone(postgres_url: str) -> None:
    schema = f"t{uuid.uuid4().hex}"
    role = f"r{uuid.uuid4().hex}"
    with (
        Tally.open(postgres_url, schema=schema, background=False) as tally,
        psycopg.connect(postgres_url, autocommit=True) as administrator,
    ):
        tally.bind(ADA).remember("The heron nests in March.")
        administrator.execute(f"CREATE ROLE {role} SUPERUSER LOGIN".encode())
        administrator.execute(f"ALTER ROLE {role} SET statement_timeout = '200ms'".encode())
        url = postgres_url.replace("postgres:@", f"{role}:@")
        with Tally.open(url, schema=schema, background=False) as limited:
            with administrator.transaction():
                administrator.execute(
                    f"LOCK TABLE {schema}.memories IN ACCESS EXCLUSIVE MODE".encode()
                )
                with pytest.raises(StorageError, match="Nothing was written"):
                    limited.bind(ADA).remember("The owl nests in April.")
            limited.bind(ADA).remember("The wren nests in May.")
        texts = {memory.content for memory in tally.bind(ADA).memories()}
        assert texts == {"The heron nests in March.", "The wren nests in May."}
        administrator.execute(f"DROP OWNED BY {role}".encode())
        administrator.execute(f"DROP ROLE {role}".encode())
