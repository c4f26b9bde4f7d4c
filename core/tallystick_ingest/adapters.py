"""Adapters by name, so that a job finds its own in any process, and where they may read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tallystick.errors import InvalidInput, SettingsError
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick_ingest.contract import Connector, SourceAdapter

_GROUP = "tallystick.sources"
LOCAL_ONLY = "localOnly"
"""Marks, in the schema of an adapter's options, one that only a caller of this machine may give."""
_LOCAL = ("python", "cli")
"""Surfaces whose caller has the machine, and names a path that it can read itself."""


@cache
def _points() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def adapter_names(settings: Settings) -> list[str]:
    """Return the names of the adapters that are installed or in the settings."""
    return sorted({*_points(), *settings.sources})


def load_adapter(
    settings: Settings, name: str, options: Mapping[str, Any] | None = None
) -> SourceAdapter:
    """Return the adapter of a name: that of the setting `sources`, else of the entry points
    `tallystick.sources`; made with options, which are of its `options_schema`. Raises InvalidInput
    for an unknown one and for options that it does not take, SettingsError for one that does not
    load, MissingExtra.
    """
    place = settings.sources.get(name)
    point = _points().get(name) if place is None else EntryPoint(name, place, _GROUP)
    if point is None:
        names = ", ".join(adapter_names(settings)) or "none is installed"
        raise InvalidInput(f"`adapter` {name!a} is unknown. There is {names}.", argument="adapter")
    try:
        adapter_type = point.load()
    except (ImportError, AttributeError, ValueError) as error:
        if place is None:
            raise
        raise SettingsError(
            f"The source {name} of the setting `sources` does not load: {place} ({error})."
        ) from error
    _require_options(name, adapter_type, options or {})
    adapter: Any = adapter_type(**(options or {})) if callable(adapter_type) else adapter_type
    if not all(hasattr(adapter, each) for each in ("corpus", "records", "name", "version")):
        raise SettingsError(f"The source {name} is no adapter: it lacks what `SourceAdapter` has.")
    return adapter  # type: ignore[no-any-return] # what it has was looked at


def _require_options(name: str, adapter_type: Any, options: Mapping[str, Any]) -> None:
    schema = getattr(adapter_type, "options_schema", None)
    if options and schema is None:
        raise InvalidInput(f"`options`: {name} takes none.", argument="options")
    if schema is None:
        return
    validator = import_module("jsonschema.validators").Draft202012Validator(dict(schema))
    for error in validator.iter_errors(dict(options)):
        options_taken = ", ".join(schema.get("properties", {})) or "none"
        raise InvalidInput(
            f"`options`: {error.json_path} is not as {name} takes it, by its {error.validator} "
            f"{error.validator_value!a}. It takes {options_taken}.",
            argument="options",
        )


def is_local(actor: Actor) -> bool:
    """Return True for a person in a process of their own, who reads files with their own rights."""
    return actor.agent is None and actor.credential is None and actor.surface in _LOCAL


class OpenSource(NamedTuple):
    """An adapter, and the target that it reads."""

    adapter: SourceAdapter
    target: str


def open_source(
    settings: Settings, actor: Actor, name: str, target: str, options: Mapping[str, Any]
) -> OpenSource:
    """Return the adapter of a name, and a target as it is read: a path whole, and within
    `source_roots` for whoever comes from outside of the process. What is read with a credential of
    the process is for those only where `served_sources` lists it, and options that a schema marks
    by LOCAL_ONLY are not for them. Raises InvalidInput for another, and as `load_adapter`.

    An adapter whose targets are no paths says so by `reads_paths = False`; addresses are none.
    """
    adapter = load_adapter(settings, name, options)
    properties = getattr(adapter, "options_schema", {}).get("properties", {})
    for option in options:
        if properties.get(option, {}).get(LOCAL_ONLY) and not is_local(actor):
            raise InvalidInput(
                f"`options`: {option} is for who runs the tally on this machine.",
                argument="options",
            )
    place = urlsplit(target)
    is_address = "://" in target and place.scheme != "file"
    is_path = not is_address and getattr(adapter, "reads_paths", True)
    needs_credential = isinstance(adapter, Connector) or (
        adapter.privacy_class != "public" and not is_path
    )
    if needs_credential and name not in settings.served_sources and not is_local(actor):
        raise InvalidInput(
            f"`adapter` {name} reads with the credential of who runs the tally, who lists it in "
            "the setting `served_sources` where callers from outside may use it.",
            argument="adapter",
        )
    if not is_path:
        return OpenSource(adapter, target)
    path = unquote(place.path) if place.scheme == "file" else target
    return OpenSource(adapter, str(allowed_path(settings, actor, path, argument="target")))


def allowed_path(settings: Settings, actor: Actor, path: str, *, argument: str) -> Path:
    """Return a path without links, which this actor may have read. Raises InvalidInput, for others
    than local ones the same for every path: it does not tell what is there.
    """
    try:
        resolved = Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        # A link that leads to itself, a user whom nobody knows, a null.
        if is_local(actor):
            text = f"`{argument}` is no path that can be read: {error}."
            raise InvalidInput(text, argument=argument) from error
    else:
        roots = [root.expanduser().resolve() for root in settings.source_roots]
        if any(resolved.is_relative_to(root) for root in roots) or is_local(actor):
            return resolved
    raise InvalidInput(
        f"`{argument}` is outside of what may be read from here. Who runs the tally lists folders "
        "in the setting `source_roots`.",
        argument=argument,
    )
