"""The models that a tally learns by: from code or from settings, and the consent to send text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from tallystick.embedding import as_embedder, named_embedder, named_reranker
from tallystick.errors import InvalidInput, MissingExtra, SettingsError
from tallystick.extension import Extension
from tallystick.memory import MemoryContext
from tallystick.ports import (
    Drafter,
    Embedder,
    Learner,
    Models,
    Reranker,
    StructuredModel,
    Summarizer,
    TokenCounter,
)
from tallystick.recorder import RecorderContext
from tallystick.recorder.payloads import require_seal
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick.storage import Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal
from tallystick.tokens.prices import PriceTable, cost_of

if TYPE_CHECKING:
    from tallystick.recorder.outbound import Outbound

LearnerLike = Learner | StructuredModel
SummarizerLike = Summarizer | StructuredModel
DrafterLike = Drafter | StructuredModel
P = TypeVar("P")

_GROUP = "tallystick.structured_models"


def choose_models(
    settings: Settings,
    extensions: Iterable[Extension[Any]],
    models: Models,
    prices: PriceTable | None,
) -> Models:
    """Return the models of a tally: those that are given, else those that settings name. Raises
    SettingsError for a model that nothing would call, or that may not be sent text.
    """
    summarizer = models.summarizer
    for extension in extensions:
        extension.require_use(settings, models)
    names = settings.learning_model
    named = tuple(
        named_model(name, settings) for name in ((names,) if isinstance(names, str) else names)
    )
    if summarizer is None and settings.summary_model is not None:
        summarizer = named_model(settings.summary_model, settings, setting="summary_model")
    models = replace(
        models,
        learners=models.learners or named,
        summarizer=summarizer,
    )
    _require_prices(settings, models, prices)
    _require_kept(settings)
    return models


def outbound_of(
    memory: MemoryContext,
    settings: Settings,
    recorder: RecorderContext,
    *,
    prices: PriceTable | None,
    counter: Callable[[str | None], TokenCounter],
) -> Outbound:
    """Return the way to the models of a tally."""
    from tallystick.recorder.outbound import Outbound

    return Outbound(
        memory.store,
        memory.remote_redactor,
        recorder,
        counter,
        settings.learning_budget,
        lambda provider, model, usage: cost_of(provider, [model or ""], usage, table=prices),
        settings.keep_placeholders,
        memory.models.declarations,
    )


def _require_prices(
    settings: Settings,
    models: Models,
    prices: PriceTable | None,
) -> None:
    """Raise SettingsError where money is limited and a model far away has no known price."""
    limits = [
        name for name, most in settings.learning_budget if "micros" in name and most is not None
    ]
    if not limits:
        return
    for declared in models.declarations:
        if declared.local:
            continue
        usage = {"input_tokens": 1, "output_tokens": 1}
        if cost_of(declared.name, [declared.model or ""], usage, table=prices).amount is None:
            raise SettingsError(
                f"learning_budget.{limits[0]} limits money, and the price of "
                f"{declared.name}:{declared.model or ''} is not known, so that nothing would stop "
                f"it. Give `prices` that have it, or limit tokens or calls."
            )


def _require_kept(settings: Settings) -> None:
    """Raise where placeholders are to be kept and could not be: MissingExtra, SettingsError."""
    if not settings.keep_placeholders:
        return
    require_seal()
    if settings.retention == "metadata_only":
        raise SettingsError(
            "`keep_placeholders` keeps what placeholders stand for in the payloads of recordings, "
            "and `retention` keeps none. Set it to redacted_payloads, or keep no placeholders."
        )


def note_consent(store: Store, memory: MemoryContext, actor: Actor) -> None:
    """Journal that a developer passed providers, an embedder or a reranker which may send text to
    other machines, once for each opening.
    """
    names = {
        f"{declared.name}:{declared.model or ''}"
        for declared in memory.models.declarations
        if not declared.local
    }
    if not memory.local_embedder:
        names.add(f"embedder:{getattr(memory.embedder, 'name', '') or memory.embedder.fingerprint}")
    if memory.reranker is not None and not getattr(memory.reranker, "local", False):
        reranker = memory.reranker
        names.add(f"reranker:{getattr(reranker, 'name', '') or type(reranker).__name__}")
    note_providers(store, names, actor)


def note_providers(store: Store, names: Collection[str], actor: Actor) -> None:
    """Journal that text may be sent to these providers, if there are any."""
    if not names or store.database.unwritable is not None:
        return
    event = journal.Event(
        stream="tally",
        event="egress.consent",
        actor=actor,
        at=store.clock.now(),
        audit_id=store.ids.new(),
        details={"providers": sorted(names)},
    )
    store.database.write(
        partial(journal.append, event=event), name="egress.consent", writes=Writes.of(TALLY)
    )


def choose_embedder(given: Any, settings: Settings) -> Embedder:
    """Return the embedder that is given, an object or a name, else the one that the settings name.

    Raises InvalidInput for a name of nothing, SettingsError for a service far away that settings
    may not name, and as `named_embedder`.
    """
    if given is not None and not isinstance(given, str):
        return as_embedder(given)
    name = settings.embedder if given is None else given
    embedder = named_embedder(name, allow_download=settings.allow_download)
    if given is None and not getattr(embedder, "local", False):
        _require_allowed("embedder", name, settings)
    return embedder


def choose_reranker(given: Reranker | str | None, settings: Settings) -> Reranker | None:
    """Return the reranker that is given, an object or a name, else the one that the settings name.
    Raises as `choose_embedder`.
    """
    if given is not None and not isinstance(given, str):
        return given
    name = settings.reranker if given is None else given
    if name is None:
        return None
    reranker = named_reranker(name, allow_download=settings.allow_download)
    if given is None and not getattr(reranker, "local", False):
        _require_allowed("reranker", name, settings)
    return reranker


def given_models(
    given: LearnerLike | str | Sequence[LearnerLike | str] | None,
) -> tuple[LearnerLike, ...]:
    """Return the models that code gave to learn by: names are made, as settings name them. Raises
    InvalidInput.
    """
    each_given: Sequence[LearnerLike | str] = (
        (given,) if isinstance(given, str) else list_models(given)
    )
    return tuple(
        _made("learning_model", each, InvalidInput) if isinstance(each, str) else each
        for each in each_given
    )


def _require_allowed(setting: str, name: str, settings: Settings) -> None:
    if settings.local_only and name not in settings.remote_allow:
        raise SettingsError(
            f"{setting}: {name!r} would be sent what is remembered, and it is not on this "
            f"machine. Add it to `remote_allow`, or pass it in code."
        )


def named_model(
    name: str, settings: Settings, *, setting: str = "learning_model"
) -> StructuredModel:
    """Return a model that a setting names, as `service:model` or `adapter:service:model`. Raises
    SettingsError for an adapter that is not installed, a model that its adapter cannot make, and
    one far away that is not allowed.
    """
    model = _made(setting, name, SettingsError)
    if not model.declaration.local:
        _require_allowed(setting, name, settings)
    return model


def _made(
    setting: str, name: str, error_type: type[SettingsError] | type[InvalidInput]
) -> StructuredModel:
    adapter, _, model = name.partition(":")
    points = {point.name: point for point in entry_points(group=_GROUP)}
    if adapter not in points or not model:
        raise error_type(
            f"{setting}: {name!r} is no model. Write it as NAME:MODEL, with one of "
            f"{', '.join(sorted(points)) or 'no adapter, as none is installed'}."
        )
    try:
        learner: StructuredModel = points[adapter].load()(model)
    except MissingExtra:
        raise
    except Exception as error:  # a runtime raises what it likes for a name, a package, a key
        raise error_type(f"{setting}: {name!r} cannot be made. {adapter} says: {error}") from error
    return learner


def list_models(value: P | Sequence[P] | None) -> tuple[P, ...]:
    """Return the models that an option names: none, one or several."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Iterable) else (value,)
