"""Configuration: arguments, then `TALLYSTICK_*`, then `tallystick.toml` in the working directory, then defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tallystick.errors import SettingsError, explain_validation
from tallystick.records import Retention

__all__ = ["Settings"]


class Settings(BaseSettings):
    """How a tally is opened. Frozen; read with `Settings.read`."""

    model_config = SettingsConfigDict(
        env_prefix="TALLYSTICK_", toml_file="tallystick.toml", frozen=True, extra="ignore"
    )

    busy_timeout_ms: int = Field(default=10_000, ge=0)
    """How long a write waits for another process, milliseconds."""
    durability: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` also the loss of power."""
    vector_search: Literal["auto", "exact", "chroma"] = "auto"
    """How vectors are searched; `auto` scans small scopes exactly and asks Chroma for large ones."""
    exact_scan_limit: int = Field(default=20_000, ge=0)
    """The largest number of vectors that `auto` scans exactly."""
    chroma: str | None = None
    """Address of a Chroma server, such as http://localhost:8000; None uses the embedded one."""
    retention: Retention = "redacted_payloads"
    """What recorded steps keep of their payloads."""
    forget_window_days: int = Field(default=30, ge=0)
    """How long a forgotten memory can be recovered."""
    allow_download: bool = False
    """Whether token encodings may be downloaded."""
    token_cache: Path | None = None
    """Folder of token encodings; by default inside the tally."""
    readers: int = Field(default=4, ge=1)
    """Database connections kept open for reading."""
    redact_pii: bool = False
    """Whether names, addresses and numbers of people are redacted like secrets."""
    redact_terms: tuple[str, ...] = ()
    """Words of your own that are redacted like secrets."""

    @classmethod
    def read(cls, **overrides: Any) -> Settings:
        """The settings of this process. Raises SettingsError naming each setting that does not fit."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SettingsError(
                f"{explain_validation(error)}. Check the arguments, the TALLYSTICK_* environment and tallystick.toml."
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
