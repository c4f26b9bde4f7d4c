"""Engines of others: what they find joins what our own rules find, ids are left whole, and nothing
loads too early.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.whole import whole

from tallystick.errors import MissingExtra
from tallystick.errors.base import install_line
from tallystick.policy import engines
from tallystick.policy.engines import KingfisherFinder
from tallystick.policy.redaction import Redactor
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick.tally import Tally

AIRTABLE = "patAbCdEfGhIjKlMn." + "0123456789abcdef" * 4
"""A credential that our own table does not know."""


@pytest.fixture(scope="module")
def finder() -> KingfisherFinder:
    pytest.importorskip("kingfisher_sdk")
    return KingfisherFinder()


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str, *, extra: str) -> None:
        raise MissingExtra(package, extra)

    monkeypatch.setattr(engines, "require", missing)
    with pytest.raises(MissingExtra, match=re.escape(install_line("secrets"))):
        KingfisherFinder()


@pytest.mark.slow
def test_what_the_engine_finds_joins_what_our_rules_find(finder: KingfisherFinder) -> None:
    ours = "sk-ant-api03-" + "a1B2" * 20
    text = f"Schlüssel \ud800 {AIRTABLE} und {ours}."

    assert Redactor().redact_text(text)[0] == text.replace(ours, "[redacted:anthropic_key:1]")
    redacted, counts = Redactor(finders=[finder]).redact_text(text)

    assert (AIRTABLE in redacted, ours in redacted) == (False, False)
    assert redacted.startswith(
        "Schlüssel \ud800 [redacted:airtable_personnal_access_token:1] und [redacted:"
    )
    assert sum(counts.values()) == 2


@pytest.mark.slow
def test_a_secret_that_the_engine_reads_otherwise_than_it_stands_takes_the_text_with_it(
    finder: KingfisherFinder,
) -> None:
    wide = "".join(f"\x00{char}" for char in "key ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
    assert Redactor(rules=(), finders=[finder]).redact_text(wide)[0] == "[redacted:github_pat:1]"


@pytest.mark.parametrize(
    "value",
    [
        "call_AbCdEf1234567890GhIjKlMn",
        "toolu_01AbCdEfGhIjKlMnOpQrStUv",
        "01a1fdc6-aa48-7771-bdeb-278e9176fa0b",
        "sha256:" + "0123456789abcdef" * 4,
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "run-3f2a1b4c-5d6e-4f70-8a9b-0c1d2e3f4a5b-0",
        "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012",
    ],
)
def test_ids_are_left_whole_by_the_engine_too(finder: KingfisherFinder, value: str) -> None:
    redactor = Redactor(finders=[finder])
    for text in (value, f"The call {value} failed.", f'{{"id": "{value}"}}'):
        assert redactor.redact_text(text) == (text, {})
    assert redactor.redact_json({"tool_call_id": value, "name": "x"})[1] == {}


@pytest.mark.soak
def test_a_tally_that_is_set_to_it_keeps_such_a_secret_out_of_packs_and_payloads(
    open_sqlite: Callable[..., Tally], finder: KingfisherFinder
) -> None:
    with open_sqlite(settings=Settings.read(secret_engine="kingfisher")) as tally:
        mine = tally.bind(Actor(user="ada"))
        mine.remember(f"The key of the table is {AIRTABLE}.")
        with mine.run("coder") as run, run.step("model_call") as step:
            step.record("request", {"prompt": f"Use {AIRTABLE}"})
        [entry] = mine.recordings.entries(step.id)
        outputs: list[Any] = [mine.pack("key of the table").text, entry.payload]
        assert AIRTABLE not in whole(outputs)
        assert "airtable" in whole(outputs)
        assert mine.recordings.verify(run.id).ok


def test_the_engine_is_not_loaded_before_it_is_asked() -> None:
    pytest.importorskip("kingfisher_sdk")
    code = (
        "import sys; from tallystick.policy.engines import KingfisherFinder; KingfisherFinder(); "
        "sys.exit('kingfisher_sdk' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
