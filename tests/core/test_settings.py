"""Settings come from arguments, variables, a file, defaults, in this order; a bad one is named with
its origin.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tallystick.errors import SettingsError
from tallystick.settings import Settings


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("TALLYSTICK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def _file(text: str) -> Path:
    file = Path("tallystick.toml").resolve()
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.smoke
def test_with_nothing_said_the_defaults_stand() -> None:
    assert Settings.read().model_dump() == {
        "busy_timeout_ms": 10_000,
        "durability": "normal",
        "vector_search": "auto",
        "exact_scan_limit": 150_000,
        "recall_cache_mb": 512,
        "rerank_deadline_ms": 300,
        "chroma": None,
        "retention": "redacted_payloads",
        "forget_window_days": 30,
        "forget_batch": 100,
        "forget_preview_only": False,
        "idempotency_days": 30,
        "manual_override_days": 30,
        "done_jobs_days": 7,
        "dead_jobs_days": 90,
        "allow_download": False,
        "token_cache": None,
        "readers": 4,
        "rate_limits": {},
        "redact_pii": False,
        "secret_engine": None,
        "redact_terms": (),
        "environment": None,
    }


def test_arguments_win_over_variables_and_variables_over_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _file(
        "readers = 2\nbusy_timeout_ms = 2\nexact_scan_limit = 2\ndurability = "
        '"full"\nredact_terms = ["Apollo"]'
    )
    monkeypatch.setenv("TALLYSTICK_READERS", "3")
    monkeypatch.setenv("TALLYSTICK_BUSY_TIMEOUT_MS", "3")

    read = Settings.read(readers=4)

    assert (read.readers, read.busy_timeout_ms, read.exact_scan_limit) == (4, 3, 2)
    assert (read.durability, read.redact_terms) == ("full", ("Apollo",))


def test_a_variable_holds_lists_as_json_and_nothing_when_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TALLYSTICK_REDACT_TERMS", '["Apollo", "Zeus"]')
    monkeypatch.setenv("TALLYSTICK_CHROMA", "")

    assert Settings.read().redact_terms == ("Apollo", "Zeus")
    assert Settings.read().chroma is None


@pytest.mark.parametrize(
    ("name", "bad", "problem"),
    [
        ("durability", "hunter2", "Input should be 'normal' or 'full'"),
        ("vector_search", "hunter2", "Input should be 'auto', 'exact' or 'chroma'"),
        (
            "retention",
            "hunter2",
            "Input should be 'metadata_only', 'redacted_payloads' or 'full_payloads'",
        ),
        ("readers", "0", "Input should be greater than or equal to 1"),
        ("busy_timeout_ms", "-1", "Input should be greater than or equal to 0"),
        ("redact_pii", "hunter2", "Input should be a valid boolean, unable to interpret input"),
    ],
)
def test_a_bad_value_is_named_with_where_it_was_set(
    name: str, bad: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value itself is not told: a setting may hold a secret."""
    with pytest.raises(SettingsError) as from_arguments:
        Settings.read(**{name: bad})
    file = _file(f'{name} = "{bad}"')
    with pytest.raises(SettingsError) as from_file:
        Settings.read()
    monkeypatch.setenv(f"TALLYSTICK_{name.upper()}", bad)
    with pytest.raises(SettingsError) as from_variable:
        Settings.read()

    assert str(from_arguments.value) == f"{name}, from the arguments: {problem}"
    assert str(from_file.value) == f"{name}, from {file}: {problem}"
    assert (
        str(from_variable.value)
        == f"{name}, from the variable TALLYSTICK_{name.upper()}: {problem}"
    )


def test_a_misspelt_setting_is_not_passed_over() -> None:
    with pytest.raises(
        SettingsError, match="redact_pi, from the arguments: there is no such setting"
    ):
        Settings.read(redact_pi=True)
    file = _file("redact_pi = true")
    with pytest.raises(SettingsError) as raised:
        Settings.read()

    assert str(raised.value) == f"redact_pi, from {file}: there is no such setting"


def test_every_bad_setting_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_REDACT_TERMS", "[1]")

    with pytest.raises(SettingsError) as raised:
        Settings.read(readers=0)

    assert str(raised.value) == (
        "readers, from the arguments: Input should be greater than or equal to 1; "
        "redact_terms.0, from the variable TALLYSTICK_REDACT_TERMS: Input should be a valid string"
    )


def test_a_list_that_is_not_json_says_how_to_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_REDACT_TERMS", "hunter2, Zeus")

    with pytest.raises(
        SettingsError, match=r'redact_terms.*Write it like \'\["Apollo"\]\''
    ) as raised:
        Settings.read()

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("content", [b"readers = ", b"\xff\xfe", b"readers = 1\nreaders = 2"])
def test_a_file_that_is_not_toml_is_named(content: bytes) -> None:
    file = Path("tallystick.toml").resolve()
    file.write_bytes(content)

    with pytest.raises(SettingsError) as raised:
        Settings.read()

    assert str(raised.value).startswith(f"{file} is not TOML: ")


def test_settings_do_not_change_after_reading() -> None:
    read = Settings.read()

    for name in Settings.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(read, name, getattr(read, name))
