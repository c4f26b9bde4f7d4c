"""Configuration: arguments, then `TALLYSTICK_*`, then files, then defaults.

Files are the one that `TALLYSTICK_SETTINGS` names, else `tallystick.toml` in the tally's folder,
then the one in the working directory. Whoever wrote the latter is not known: it may change speed
and ranking, and nothing else until the user trusts it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as UnreadableVariable,
)

from tallystick.errors import InvalidInput, SettingsError
from tallystick.ranking import RecallWeights
from tallystick.records import (
    AlertLimits,
    Autonomy,
    CallBudget,
    LearnAt,
    Learning,
    LearningBudget,
    Limited,
    Retention,
    ScoreWeights,
    SecretsInMemory,
    UnattendedAction,
)

_TRUSTED = "trusted"


def user_state() -> Path | None:
    """Return the folder; None for a user without a home, as in some containers."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(base) if base else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "tallystick"


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user has trusted this file with this content."""
    state = user_state()
    return state is not None and (state / _TRUSTED / _digest(file, content)).exists()


def trust_file(file: Path, content: bytes) -> str:
    """Trust a file at its place, with the content that was looked at; return the digest that is
    kept. Raises SettingsError.
    """
    state = user_state()
    if state is None:
        raise SettingsError(
            "There is no home in which to keep what you trust. Set XDG_STATE_HOME to a folder of "
            "yours."
        )
    try:
        digest = _digest(file, content)
        (state / _TRUSTED).mkdir(mode=0o700, parents=True, exist_ok=True)
        (state / _TRUSTED / digest).write_text(f"{file.resolve()}\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{error.filename}: {error.strerror}.") from error
    return digest


def _digest(file: Path, content: bytes) -> str:
    place = os.fsencode(file.resolve())
    return hashlib.sha256(b"%d:%s%s" % (len(place), place, content)).hexdigest()


__all__ = ["SETTINGS_FILE", "Settings"]

_PREFIX = "TALLYSTICK_"
SETTINGS_FILE = "tallystick.toml"
"""The file of settings, in the folder of a tally and in the working directory."""
_FILE_VARIABLE = f"{_PREFIX}SETTINGS"
"""The variable that names another file of settings."""
_OTHER_VARIABLES = frozenset({"TALLYSTICK_TALLY", "TALLYSTICK_AS", _FILE_VARIABLE})
"""Variables that are no settings."""
TEMPORARY = ":memory:"
"""Names a tally that nobody keeps, as SQLite names such a database."""
HARMLESS = frozenset(
    {
        "busy_timeout_ms",
        "compile_weights",
        "durability",
        "forget_preview_only",
        "graph",
        "graph_alias_threshold",
        "large_scope",
        "prepare_threshold",
        "readers",
        "recall_cache_mb",
        "recall_weights",
        "redact_pii",
        "redact_terms",
        "rerank_deadline_ms",
        "time_zone",
        "vector_search",
        "writers",
    }
)
"""Settings that send nothing anywhere, and by which nothing is kept or redacted less."""
_folder: ContextVar[Path | None] = ContextVar("tallystick_settings_folder", default=None)
"""The folder of the tally whose settings are read."""
_LOCAL = "local"
_LONGEST_DAYS = 365_000
"""A thousand years: a moment that is further away is in no calendar."""
_LARGEST = 2**31 - 1
"""A number that databases and clocks take, however it is counted further."""
_NAME_OF_MODEL = r"^(static|minilm|[a-z0-9][a-z0-9_-]*:.+)$"
_LIBPQ = re.compile(
    r"\s*(?:host|hostaddr|port|dbname|user|password|passfile|service|options|sslmode"
    r"|application_name|connect_timeout|target_session_attrs)\s*="
)
"""The beginning of an address of PostgreSQL as its own library writes it, which is no folder."""


class Settings(BaseSettings):
    """The settings with which a tally is opened. Frozen; read with `Settings.read`.

    A list or a table in a variable is JSON, such as `TALLYSTICK_REDACT_TERMS='["Apollo"]'`; an
    empty variable counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
    )

    busy_timeout_ms: int = Field(default=10_000, ge=0, le=_LARGEST)
    """How long a call waits for what another process or client holds, milliseconds."""
    durability: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` also the loss of power."""
    private_files: bool = True
    """True if the folder of a tally and its files are for this user alone, whatever the umask;
    False leaves their permissions as they are, for a folder that a group shares.
    """
    vector_search: Literal["auto", "exact", "chroma"] = "auto"
    """The search for vectors: `auto` scans small scopes and asks Chroma for large ones; `exact`
    never asks Chroma; `chroma` always does, and has every scope there.
    """
    embedder: str = Field(default="static", pattern=_NAME_OF_MODEL)
    """The embedder, where the call that opens the tally gives none: `static` is the table that
    comes along, `minilm` Chroma's MiniLM; else a library or service and its model, such as
    `model2vec:FOLDER`, `fastembed:MODEL`, `sentence-transformers:MODEL`, `ollama:MODEL`,
    `openai:MODEL`.
    """
    reranker: str | None = Field(default=None, pattern=_NAME_OF_MODEL)
    """A model that orders the best hits of recall anew, where code gives none: `fastembed:MODEL`
    or `sentence-transformers:MODEL`.
    """
    recall_cache_mb: int = Field(default=512, ge=1, le=_LARGEST)
    """Memory for the words and vectors that recall keeps, in MB as the process grows by them; the
    scopes used last stay.
    """
    large_scope: int = Field(default=50_000, ge=1, le=_LARGEST)
    """The most memories of a scope that is not large. Of a large one, and of one that would fill
    half of `recall_cache_mb`, a question reads its part of the text from the database; vectors of a
    large one are in Chroma too, unless `vector_search` is `exact`.
    """
    rerank_deadline_ms: int = Field(default=300, ge=1, le=_LARGEST)
    """How long recall waits for a reranker before it continues without, milliseconds."""
    chroma: str | None = None
    """Address of a Chroma server, such as http://localhost:8000; None uses the embedded one."""
    objects: str | None = None
    """Where large bodies (payloads of steps, sources) are moved out of the database: a folder, or
    s3://bucket/prefix, which needs the extra `s3`; None keeps them in the database.
    """
    objects_from_kb: int = Field(default=256, ge=1, le=_LARGEST)
    """The size from which on a body is moved there, kB."""
    retention: Retention = "redacted_payloads"
    """The payloads that recorded steps keep."""
    longest_memory_kb: int = Field(default=1_024, ge=1, le=10_240)
    """The longest text of a memory, kB; a longer one is refused, whoever stores it."""
    forget_window_days: int = Field(default=30, ge=0, le=_LONGEST_DAYS)
    """Days for which a forgotten memory can be recovered."""
    forget_batch: int = Field(default=100, ge=1, le=_LARGEST)
    """The most memories that one `forget_matching` may forget; more is refused."""
    backup_before_migration: bool = True
    """True if an embedded tally of an older schema is backed up beside its folder, and the backup
    verified, before opening it migrates it.
    """
    forget_preview_only: bool = False
    """True if `forget_matching` is previewed and never applied, whoever asks."""
    tombstones_days: int | None = Field(default=None, ge=1, le=_LONGEST_DAYS)
    """Days after which the text of forgotten memories is destroyed by itself, and never before
    `forget_window_days`; None: only where a person chose it for this tally, as `tally init` asks.
    """
    done_jobs_days: int = Field(default=14, ge=0, le=_LONGEST_DAYS)
    """Days for which jobs that are done are kept, unless a person chose others for this tally."""
    dead_jobs_days: int = Field(default=30, ge=0, le=_LONGEST_DAYS)
    """Days for which jobs that failed or died are kept, unless a person chose others."""
    idempotency_days: int = Field(default=30, ge=1, le=_LONGEST_DAYS)
    """Days for which the first answer under an idempotency key is kept: a later call is carried out
    anew.
    """
    manual_override_days: int = Field(default=30, ge=0, le=_LONGEST_DAYS)
    """Days for which a person's edit is locked against agents, if the lock has no end of its
    own.
    """
    profile_budget: int = Field(default=350, ge=0, le=_LARGEST)
    """Tokens of what a session is shown of a user at its first turn; 0 for nothing."""
    record_costs: bool = False
    """True if the metadata of each recorded step say what its pieces took: `tally show --costs`."""
    session_pause_hours: float = Field(default=6.0, gt=0, le=24 * _LONGEST_DAYS)
    """Hours without a turn after which a session is shown its profile anew."""
    graph: bool = False
    """True if the names in what is remembered are linked into a graph of entities, by jobs: those
    that a model or `remember(entities=…)` gave, and where a text writes them exactly.
    """
    graph_alias_threshold: int = Field(default=90, ge=50, le=100)
    """The least likeness, percent, at which a name that is asked for is taken for one of the
    graph; 100 only where one is the other without case and marks.
    """
    reflection: Literal["off", "review"] = "off"
    """Whether `reflect` has a model draw conclusions: `review` proposes them to a person."""
    prices: Path | None = None
    """TOML file of your own prices of models, before those of the package genai-prices."""
    allow_download: bool = False
    """True if token encodings, and models of embedders and rerankers, may be downloaded."""
    token_cache: Path | None = None
    """Folder of token encodings; by default inside the tally."""
    readers: int = Field(default=4, ge=1)
    """Database connections kept open for reading; on PostgreSQL as many threads read at once."""
    writers: int | None = Field(default=None, ge=1, le=32)
    """Connections that write to a PostgreSQL tally, 4 by default: scopes are written beside one
    another. SQLite has one, and refuses another number.
    """
    prepare_threshold: int | None = Field(default=None, ge=0)
    """Times that a statement is run on a connection before PostgreSQL prepares it; 0 for never. By
    default 5, and never behind a pooler such as PgBouncer, which may mix them up.
    """
    max_connections: int = Field(default=512, ge=1, le=65_536)
    """Connections that one server process has at once; a request beyond them is refused with 503,
    but for whether the server runs.
    """
    rate_limits: dict[Limited, Annotated[int, Field(ge=1, le=6_000_000)]] = {}
    """Number of times an actor may `read`, `inspect`, `preview`, `export`, `write`, `modify`,
    `forget` or `erase` in a minute, in all processes together; where it says nothing, callers with
    an access token have limits all the same. Many memories in one call count each.
    """
    redact_pii: bool = False
    """True to redact names, addresses and numbers of people like secrets."""
    secret_engine: Literal["kingfisher"] | None = None
    """An engine whose findings join those of our own rules; needs the extra `secrets`."""
    redact_terms: tuple[str, ...] = ()
    """Words of your own that are redacted like secrets."""
    secrets_in_memory: SecretsInMemory = "redact"
    """Whether a secret in what is to be remembered is replaced by a placeholder (`redact`), makes
    the call fail (`refuse`) or is stored (`keep`); a model is shown none in any case.
    """

    keep_placeholders: bool = False
    """True to keep, sealed, what the placeholders in calls of models for learning stand for, with
    the recording of the call; needs the extra `signing` and recordings that keep payloads.
    """

    learning: Learning = "off"
    """What becomes of the facts that a model draws from what is remembered: `review` proposes them
    to a person, `apply` applies those that pass the checks and holds the rest, and `shadow` shows
    what would be done.
    """
    learn_at: LearnAt = "session"
    """When a conversation is read: in one call when it ended (`session`: at its end, before a
    compaction, or after half an hour without a turn), after each answer (`exchange`) or after each
    turn.
    """
    learning_budget: LearningBudget = LearningBudget()
    """What calls of models for learning may cost, per job, per scope and day, and per day."""
    local_only: bool = True
    """True if a model or an embedder that is named in settings gets text only where it is on this
    machine or in `remote_allow`; one that is passed in code is your consent, which is journaled.
    """
    remote_allow: tuple[str, ...] = ()
    """Models and embedders far away that settings may name, such as `openai:gpt-5-mini`."""
    learning_model: str | tuple[str, ...] = ()
    """The model that extracts and decides, or several, the preferred one first: `ollama:qwen3`,
    `openai:gpt-5-mini`, `anthropic:claude-haiku-4-5`; with a runtime before it, one of that
    runtime: `pydantic-ai:ollama:qwen3`, `langchain:ollama:qwen3`, `llama-index:ollama:qwen3`.
    """
    summary_model: str | None = None
    """A model that summarizes the communities of the graph, and memories for compiles with
    `compaction="summary"`, named like those; else summaries quote their sources.
    """

    providers: tuple[str, ...] = ()
    """Models that are called for callers over HTTP and MCP, and for the dashboard, with a key from
    the environment of this process: names and patterns such as `openai:*`. Nothing is sent for them
    where there is none.
    """

    providers_budget: CallBudget = CallBudget()
    """What the calls of `providers` may cost, per scope and day, and per day: a call for which less
    is left than it may cost at most is refused.
    """

    autonomy: Autonomy = "off"
    """Whether the tally looks after itself: `observe` says in the journal what it would do, and
    `execute` does what `unattended` allows and asks a person for the rest.
    """
    unattended: tuple[UnattendedAction, ...] = ("requeue", "release_lease", "check", "reembed")
    """Repairs that may run without a person."""
    alerts: AlertLimits = AlertLimits()
    """The limits beyond which an alert is raised; those that are not named keep their default."""

    sources: dict[str, Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]] = {}
    """Adapters of sources of your own, beside those that are installed: the name of each, and
    where it is, such as `my_package.wiki:WikiAdapter`.
    """
    source_roots: tuple[Path, ...] = ()
    """Folders of this machine that callers over HTTP and MCP may have imported; without any none.
    """
    served_sources: tuple[str, ...] = ()
    """Adapters that read with a credential of this process, such as a drive's, and that callers
    over HTTP and MCP may use; without any they may use none.
    """
    environment: str | None = None
    """The environment of this process for rules, such as `production`, where a call names none."""
    time_zone: str = "UTC"
    """Zone of moments that are given without an offset: an IANA name such as `Europe/Berlin`, or
    `local` for that of this machine.
    """
    recall_weights: RecallWeights = RecallWeights()
    """The weight of each signal of recall; those that are not named keep their default."""
    compile_weights: ScoreWeights = ScoreWeights()
    """The weight of each part of the compiler's score, in thousandths; those that are not named
    keep their default.
    """

    @property
    def zone(self) -> tzinfo:
        """The time zone of `time_zone`."""
        return _zone(self.time_zone)

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, name: str) -> str:
        _zone(name)
        return name

    @classmethod
    def read(cls, where: str | os.PathLike[str] = TEMPORARY, /, **overrides: Any) -> Settings:
        """Return the settings of this process, for the tally at `where` if one is named.

        Raises SettingsError naming each setting that does not fit and where it was set, never its
        value; and for a file in the working directory that sets what only a trusted one may.
        """
        _refuse_unknown_variables(cls.model_fields)
        token = _folder.set(folder_of(where))
        try:
            return cls(**overrides)
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False, include_context=False)
            raise SettingsError(
                "; ".join(_explain(problem, overrides) for problem in problems)
            ) from error
        except UnreadableVariable as error:
            raise SettingsError(
                f"A {_PREFIX}* variable that holds a list or a table is not JSON ({error}). Write "
                f"it like '[\"Apollo\"]' or '{{\"text\": 0.5}}'."
            ) from error
        finally:
            _folder.reset(token)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the files; those only that set something."""
        variables = [env_settings] if _variables() - _OTHER_VARIABLES else []
        files = filter(None, map(_settings_in, settings_files(_folder.get())))
        sources = (InitSettingsSource(settings_cls, values) for values in files)
        return init_settings, *variables, *sources


def folder_of(where: str | os.PathLike[str]) -> Path | None:
    """Return the folder of the tally at `where`; None for a database, and for `:memory:`."""
    text = os.fspath(where)
    if not text:
        raise InvalidInput(
            "`where` is empty. Give a folder such as .tally, or postgresql://user@host/database.",
            argument="where",
        )
    is_address = "://" in text or (isinstance(where, str) and _LIBPQ.match(text) is not None)
    return None if is_address or text == TEMPORARY else Path(text).expanduser().absolute()


def settings_files(folder: Path | None) -> tuple[Path, ...]:
    """Return the files of settings of a tally in a folder, or of a database, those first that
    win.
    """
    named, here = os.environ.get(_FILE_VARIABLE), Path(SETTINGS_FILE)
    if named:
        return (Path(named).expanduser(),)
    return (here,) if folder is None else (folder / SETTINGS_FILE, here)


def _settings_in(file: Path) -> dict[str, Any]:
    """Return the settings that a file has; none where there is no file. Raises SettingsError."""
    values, content = read_settings_file(file)
    unsure = sorted(set(values) & (set(Settings.model_fields) - HARMLESS))
    if unsure and _is_from_anybody(file) and not is_trusted(file, content):
        raise SettingsError(
            f"{file.resolve()} sets {', '.join(unsure)}, and whoever wrote it may not be you: "
            "such a file may send what is remembered elsewhere, or keep less of it. Read it, "
            "then run `tally trust`; or move it into the folder of the tally."
        )
    return values


def read_settings_file(file: Path) -> tuple[dict[str, Any], bytes]:
    """Return what a file of settings holds, and the bytes that say so, read once: what is trusted
    is what is used. Nothing where there is no file, unless it was named. Raises SettingsError.
    """
    try:
        content = file.read_bytes()
        return tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n")), content
    except FileNotFoundError as error:
        if os.environ.get(_FILE_VARIABLE):
            raise SettingsError(
                f"{file.resolve()}, which {_FILE_VARIABLE} names, is not there."
            ) from error
        return {}, b""
    except NotADirectoryError:
        return {}, b""
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{file.resolve()} is not TOML: {error}. Correct or remove it."
        ) from error
    except OSError as error:
        raise SettingsError(f"{file.resolve()} cannot be read: {error.strerror}.") from error


def _is_from_anybody(file: Path) -> bool:
    """Return whether a file is used only because a process runs where it lies."""
    if os.environ.get(_FILE_VARIABLE):
        return False
    folder = _folder.get()
    return folder is None or file.resolve() != (folder / SETTINGS_FILE).resolve()


def _variables() -> set[str]:
    """Return the variables of this process with our prefix that are not empty."""
    return {
        name for name, value in os.environ.items() if value and name.upper().startswith(_PREFIX)
    }


def _refuse_unknown_variables(names: Iterable[str]) -> None:
    """Raise SettingsError for variables with our prefix that name no setting: most are misspelt."""
    variables = {f"{_PREFIX}{name}".upper() for name in names} | _OTHER_VARIABLES
    unknown = sorted(key for key in _variables() if key.upper() not in variables)
    if unknown:
        raise SettingsError(
            "; ".join(
                f"{key}: there is no such variable{_suggestion(key.upper(), variables)}"
                for key in unknown
            )
            + " (correct or unset it)"
        )


def _explain(problem: Any, overrides: dict[str, Any]) -> str:
    *path, last = problem["loc"]
    where = (
        f"{'.'.join(map(str, problem['loc']))}, from {_origin(str(problem['loc'][0]), overrides)}"
    )
    if problem["type"] != "extra_forbidden":
        return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
    if not path:
        return f"{where}: there is no such setting{_suggestion(last, Settings.model_fields)}"
    table = Settings.model_fields[path[0]].annotation
    assert isinstance(table, type)
    assert issubclass(table, BaseModel)
    return f"{where}: there is no such key; there are {', '.join(table.model_fields)}"


def _suggestion(name: str, names: Iterable[str]) -> str:
    """Return a question that names what was meant, if something is near."""
    matches = get_close_matches(name, list(names), n=1, cutoff=0.75)
    return f"; did you mean {matches[0]}?" if matches else ""


def _zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, or that of this machine. Raises ValueError."""
    if name == _LOCAL:
        return _LocalZone()
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        if not available_timezones():
            raise ValueError(
                "names no time zone: this machine has no list of them. Run: pip install tzdata, or "
                "write UTC or local"
            ) from error
        raise ValueError(
            "names no time zone; write one such as Europe/Berlin, UTC or local"
        ) from error


class _LocalZone(tzinfo):
    """The zone of this machine, with the summer time of each date."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def _origin(name: str, overrides: dict[str, Any]) -> str:
    if name in overrides:
        return "the arguments"
    variable = f"{_PREFIX}{name}".upper()
    set_by = next(
        (key for key, value in os.environ.items() if key.upper() == variable and value), None
    )
    if set_by:
        return f"the variable {set_by}"
    every = settings_files(_folder.get())
    files = (file for file in every if name in read_settings_file(file)[0])
    return str(next(files, Path(SETTINGS_FILE)).resolve())
