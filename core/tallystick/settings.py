"""Configuration: arguments, then `TALLYSTICK_*`, then `tallystick.toml` in the working directory,
then defaults.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as UnreadableVariable,
)

from tallystick.errors import SettingsError
from tallystick.records import Limited, Retention

__all__ = ["Settings"]

_PREFIX = "TALLYSTICK_"
_FILE = "tallystick.toml"


def _zone(name: str) -> tzinfo:
    """Return a time zone by its name. Raises ValueError."""
    if name == "local":
        return datetime.now().astimezone().tzinfo or UTC
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "names no time zone; write one such as Europe/Berlin, UTC or local (where the system "
            "has no list of zones, install the package tzdata)"
        ) from None


def _check_zone(name: str) -> str:
    _zone(name)
    return name


class Settings(BaseSettings):
    """The settings with which a tally is opened. Frozen; read with `Settings.read`.

    A list in a variable is JSON, such as `TALLYSTICK_REDACT_TERMS='["Apollo"]'`; an empty variable
    counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, toml_file=_FILE, frozen=True, extra="forbid"
    )

    busy_timeout_ms: int = Field(default=10_000, ge=0)
    """How long a write waits for another process, milliseconds."""
    durability: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` also the loss of power."""
    vector_search: Literal["auto", "exact", "chroma"] = "auto"
    """The search for vectors; `auto` scans small scopes exactly and asks Chroma for large ones.
    """
    exact_scan_limit: int = Field(default=150_000, ge=0)
    """The largest number of vectors that `auto` scans exactly."""
    recall_cache_mb: int = Field(default=512, ge=1)
    """Searchable text that recall keeps in memory, in MB; the scopes used last stay."""
    rerank_deadline_ms: int = Field(default=300, ge=1)
    """How long recall waits for a reranker before it continues without, milliseconds."""
    chroma: str | None = None
    """Address of a Chroma server, such as http://localhost:8000; None uses the embedded one."""
    retention: Retention = "redacted_payloads"
    """The payloads that recorded steps keep."""
    forget_window_days: int = Field(default=30, ge=0)
    """Days for which a forgotten memory can be recovered."""
    forget_batch: int = Field(default=100, ge=1)
    """The most memories that one `forget_matching` may forget; more is refused."""
    forget_preview_only: bool = False
    """True if `forget_matching` is previewed and never applied, whoever asks."""
    done_jobs_days: int = Field(default=7, ge=0)
    """Days for which finished jobs are kept."""
    dead_jobs_days: int = Field(default=90, ge=0)
    """Days for which jobs that failed for good are kept, for investigation."""
    idempotency_days: int = Field(default=30, ge=1)
    """Days for which the first answer under an idempotency key is kept: a later call is carried out
    anew.
    """
    manual_override_days: int = Field(default=30, ge=0)
    """Days for which a person's edit is locked against agents, if the lock has no end of its
    own.
    """
    allow_download: bool = False
    """True if token encodings may be downloaded."""
    token_cache: Path | None = None
    """Folder of token encodings; by default inside the tally."""
    readers: int = Field(default=4, ge=1)
    """Database connections kept open for reading."""
    rate_limits: dict[Limited, Annotated[int, Field(ge=1, le=6_000_000)]] = {}
    """Number of times an actor may `read`, `inspect`, `preview`, `export`, `write`, `modify`,
    `forget` or `erase` in a minute, in each process; empty: no limit. Many memories in one call
    count each.
    """
    redact_pii: bool = False
    """True to redact names, addresses and numbers of people like secrets."""
    secret_engine: Literal["kingfisher"] | None = None
    """An engine whose findings join those of our own rules; needs the extra `secrets`."""
    redact_terms: tuple[str, ...] = ()
    """Words of your own that are redacted like secrets."""

    time_zone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    """Zone of moments that are given without an offset: an IANA name such as `Europe/Berlin`, or
    `local` for that of this machine.
    """
    environment: str | None = None
    """The environment of this process for rules, such as `production`, where a call names none."""

    @property
    def zone(self) -> tzinfo:
        """The zone that `time_zone` names."""
        return _zone(self.time_zone)

    @classmethod
    def read(cls, **overrides: Any) -> Settings:
        """Return the settings of this process.

        Raises SettingsError naming each setting that does not fit and where it was set, never its
        value.
        """
        try:
            return cls(**overrides)
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False, include_context=False)
            raise SettingsError(
                "; ".join(_explain(problem, overrides) for problem in problems)
            ) from error
        except UnreadableVariable as error:
            raise SettingsError(
                f"A {_PREFIX}* variable that holds a list is not JSON ({error}). Write it like "
                f"'[\"Apollo\"]'."
            ) from error
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"{Path(_FILE).resolve()} is not TOML: {error}. Correct or remove it."
            ) from error
        except OSError as error:
            raise SettingsError(
                f"{Path(_FILE).resolve()} cannot be read: {error.strerror}."
            ) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def _explain(problem: Any, overrides: dict[str, Any]) -> str:
    name = str(problem["loc"][0])
    message = "there is no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
    return f"{'.'.join(map(str, problem['loc']))}, from {_origin(name, overrides)}: {message}"


def _origin(name: str, overrides: dict[str, Any]) -> str:
    if name in overrides:
        return "the arguments"
    variable = f"{_PREFIX}{name}".upper()
    set_by = next(
        (key for key, value in os.environ.items() if key.upper() == variable and value), None
    )
    return f"the variable {set_by}" if set_by else str(Path(_FILE).resolve())
