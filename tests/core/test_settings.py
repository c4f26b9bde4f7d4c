"""Settings come from arguments, variables, a file, defaults, in this order; a bad one is named with
its origin.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from tallystick import ContextItem, Tally
from tallystick.errors import SettingsError
from tallystick.ranking import RecallWeights
from tallystick.records import AlertLimits, CallBudget, LearningBudget, ScoreWeights
from tallystick.settings import HARMLESS, Settings, trust_file


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("TALLYSTICK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _file(text: str) -> Path:
    file = Path("tallystick.toml").resolve()
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.smoke
def test_with_nothing_said_the_defaults_stand() -> None:
    assert Settings.read().model_dump() == {
        "busy_timeout_ms": 10_000,
        "durability": "normal",
        "private_files": True,
        "vector_search": "auto",
        "embedder": "static",
        "recall_cache_mb": 512,
        "large_scope": 50_000,
        "rerank_deadline_ms": 300,
        "chroma": None,
        "writers": None,
        "objects": None,
        "objects_from_kb": 256,
        "retention": "redacted_payloads",
        "forget_window_days": 30,
        "forget_batch": 100,
        "backup_before_migration": True,
        "forget_preview_only": False,
        "idempotency_days": 30,
        "manual_override_days": 30,
        "profile_budget": 350,
        "session_pause_hours": 6.0,
        "tombstones_days": None,
        "done_jobs_days": 14,
        "dead_jobs_days": 30,
        "graph": False,
        "graph_alias_threshold": 90,
        "reflection": "off",
        "prices": None,
        "allow_download": False,
        "token_cache": None,
        "readers": 4,
        "rate_limits": {},
        "redact_pii": False,
        "secret_engine": None,
        "redact_terms": (),
        "secrets_in_memory": "redact",
        "keep_placeholders": False,
        "learning": "off",
        "learn_at": "session",
        "learning_budget": LearningBudget().model_dump(),
        "providers_budget": CallBudget().model_dump(),
        "record_costs": False,
        "remote_allow": (),
        "learning_model": (),
        "reranker": None,
        "summary_model": None,
        "local_only": True,
        "longest_memory_kb": 1_024,
        "max_connections": 512,
        "prepare_threshold": None,
        "providers": (),
        "autonomy": "off",
        "unattended": ("requeue", "release_lease", "check", "reembed"),
        "alerts": AlertLimits().model_dump(),
        "sources": {},
        "source_roots": (),
        "served_sources": (),
        "environment": None,
        "time_zone": "UTC",
        "recall_weights": RecallWeights().model_dump(),
        "compile_weights": ScoreWeights().model_dump(),
    }


def test_arguments_win_over_variables_and_variables_over_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _file(
        "readers = 2\nbusy_timeout_ms = 2\nlarge_scope = 2\ndurability = "
        '"full"\nredact_terms = ["Apollo"]'
    )
    monkeypatch.setenv("TALLYSTICK_READERS", "3")
    monkeypatch.setenv("TALLYSTICK_BUSY_TIMEOUT_MS", "3")

    read = Settings.read(readers=4)

    assert (read.readers, read.busy_timeout_ms, read.large_scope) == (4, 3, 2)
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
        ("large_scope", "0", "Input should be greater than or equal to 1"),
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
    trust_file(file, file.read_bytes())
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
        SettingsError,
        match=r"redact_pi, from the arguments: there is no such setting; did you mean redact_pii\?",
    ):
        Settings.read(redact_pi=True)
    file = _file("redact_pi = true")
    with pytest.raises(SettingsError) as raised:
        Settings.read()

    assert str(raised.value) == (
        f"redact_pi, from {file}: there is no such setting; did you mean redact_pii?"
    )


def test_a_misspelt_variable_is_refused_and_the_right_name_suggested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TALLYSTICK_TALLY", "/somewhere")
    monkeypatch.setenv("TALLYSTICK_AS", "ada")
    monkeypatch.setenv("TALLYSTICK_RETENTOIN", "")
    assert Settings.read().retention == "redacted_payloads"

    monkeypatch.setenv("TALLYSTICK_RETENTOIN", "full_payloads")
    with pytest.raises(SettingsError) as raised:
        Settings.read()

    assert str(raised.value) == (
        "TALLYSTICK_RETENTOIN: there is no such variable; did you mean TALLYSTICK_RETENTION? "
        "(correct or unset it)"
    )


def test_weights_are_in_the_file_by_name_and_the_others_keep_their_default() -> None:
    file = _file("[recall_weights]\ntext = 0.5\n[compile_weights]\nfreshness = 0\n")

    read = Settings.read()
    assert read.recall_weights == RecallWeights(text=0.5)
    assert read.compile_weights == ScoreWeights(freshness=0)

    _file("[recall_weights]\ntxet = 0.5\n")
    with pytest.raises(SettingsError) as raised:
        Settings.read()
    assert str(raised.value) == (
        f"recall_weights.txet, from {file}: there is no such key; there are "
        f"{', '.join(RecallWeights.model_fields)}"
    )


def test_weights_of_the_file_rank_and_compile_and_those_of_a_call_win(tmp_path: Path) -> None:
    question = "What did Ada say about the kiln?"
    _file("[recall_weights]\nspeaker = -9\n[compile_weights]\nrelevance = 7\nfreshness = 0\n")
    with Tally.open(tmp_path / "tally", background=False) as tally:
        bound = tally.bind()
        for speaker in ("Ada", "Bob"):
            bound.remember(f"The kiln is hot, says {speaker}.", speaker=speaker)
        assert "Bob" in bound.recall(question)[0].memory.content
        assert "Ada" in bound.recall(question, weights=RecallWeights())[0].memory.content
        items = [
            ContextItem(id="note", kind="retrieval_doc", content="The kiln is hot."),
            ContextItem(id="ask", kind="user_msg", content=question),
        ]
        note = next(d for d in bound.compile(items, budget=500).decisions if d.item_id == "note")
    assert note.score_breakdown["freshness"] == 0
    assert 0 < note.score_breakdown["relevance"] <= 7_000

    with Tally.open(tmp_path / "tally", background=False, weights=RecallWeights()) as tally:
        assert "Ada" in tally.bind().recall(question)[0].memory.content


def test_a_time_zone_is_known_by_its_name_and_local_is_that_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summer, winter = datetime(2026, 7, 1, 12), datetime(2026, 1, 1, 12)
    zone = Settings.read(time_zone="Europe/Zurich").zone
    assert [day.replace(tzinfo=zone).utcoffset() for day in (summer, winter)] == [
        timedelta(hours=2),
        timedelta(hours=1),
    ]

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        local = Settings.read(time_zone="local").zone
        assert [day.replace(tzinfo=local).utcoffset() for day in (summer, winter)] == [
            timedelta(hours=-4),
            timedelta(hours=-5),
        ]
        assert datetime(2026, 7, 1, 16, tzinfo=UTC).astimezone(local).hour == 12
    finally:
        monkeypatch.undo()
        time.tzset()

    with pytest.raises(SettingsError, match="time_zone, from the arguments: names no time zone"):
        Settings.read(time_zone="Europe/Atlantis")


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


UNSURE = """
chroma = "http://attacker"
objects = "s3://theirs"
forget_window_days = 0
tombstones_days = 1
private_files = false
remote_allow = ["pydantic-ai:openai:gpt-5"]
environment = "test"
"""


def test_what_only_a_trusted_file_may_set_is_refused_by_name_in_the_working_directory(
    tmp_path: Path,
) -> None:
    Tally.open(tmp_path / "home", background=False).close()
    file = _file(f"readers = 2{UNSURE}")

    for ask in (Settings.read, lambda: Tally.open(tmp_path / "home", background=False)):
        with pytest.raises(SettingsError) as raised:
            ask()
        assert str(raised.value).startswith(
            f"{file} sets chroma, environment, forget_window_days, objects, private_files, "
            "remote_allow, tombstones_days, and whoever wrote it may not be you"
        )
        assert "run `tally trust`" in str(raised.value)

    _file('readers = 2\ntime_zone = "local"\nredact_terms = ["Apollo"]')
    assert Settings.read(tmp_path / "home").readers == 2


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - HARMLESS))
def test_every_other_setting_needs_a_trusted_file(name: str) -> None:
    _file(f"{name} = 1")
    with pytest.raises(SettingsError, match=f"sets {name}, and whoever"):
        Settings.read()


def test_a_file_is_trusted_as_it_is_and_where_it_is(tmp_path: Path) -> None:
    file = _file("forget_window_days = 60")
    trust_file(file, file.read_bytes())
    assert Settings.read().forget_window_days == 60

    _file("forget_window_days = 0")
    with pytest.raises(SettingsError, match="sets forget_window_days"):
        Settings.read()
    _file("forget_window_days = 60")
    (tmp_path / "clone").mkdir()
    os.chdir(tmp_path / "clone")
    _file("forget_window_days = 60")
    with pytest.raises(SettingsError, match="sets forget_window_days"):
        Settings.read()


def test_the_file_in_the_folder_of_the_tally_sets_everything_and_wins(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    Tally.open(folder, background=False).close()
    (folder / "tallystick.toml").write_text("forget_window_days = 60\nreaders = 3\n")
    _file("readers = 2\nlarge_scope = 2")
    with Tally.open(folder, background=False) as tally:
        read = tally.settings
    assert (read.forget_window_days, read.readers, read.large_scope) == (60, 3, 2)

    os.chdir(folder)
    assert Settings.read(".").forget_window_days == 60


def test_a_file_that_is_named_stands_for_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _file(UNSURE)
    named = tmp_path / "mine.toml"
    named.write_text("forget_window_days = 60\n")
    monkeypatch.setenv("TALLYSTICK_SETTINGS", str(named))
    assert Settings.read().forget_window_days == 60

    monkeypatch.setenv("TALLYSTICK_SETTINGS", str(tmp_path / "nowhere.toml"))
    with pytest.raises(SettingsError, match="which TALLYSTICK_SETTINGS names, is not there"):
        Settings.read()


def test_what_is_trusted_is_what_was_looked_at() -> None:
    """Not what somebody put in its place meanwhile."""
    file = _file("forget_window_days = 60")
    looked_at = file.read_bytes()
    _file("forget_window_days = 0")
    trust_file(file, looked_at)
    with pytest.raises(SettingsError, match="sets forget_window_days"):
        Settings.read()


def test_without_a_home_nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError

    file = _file("forget_window_days = 60")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(SettingsError, match="Set XDG_STATE_HOME"):
        trust_file(file, file.read_bytes())
    with pytest.raises(SettingsError, match="sets forget_window_days"):
        Settings.read()


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 10**14) for name in Settings.model_fields if name.endswith("_days")),
        *(("session_pause_hours", hours) for hours in (float("inf"), 1e300)),
        ("large_scope", 10**20),
        ("busy_timeout_ms", 10**20),
    ],
)
def test_a_time_or_a_number_beyond_every_calendar_and_database_is_refused_when_it_is_set(
    name: str, value: float
) -> None:
    with pytest.raises(SettingsError, match=f"^{name}, from the arguments: .* less than"):
        Settings.read(**{name: value})


def test_a_file_with_the_byte_order_mark_of_an_editor_is_read() -> None:
    Path("tallystick.toml").write_bytes(b"\xef\xbb\xbfreaders = 2\r\n")

    assert Settings.read().readers == 2
