"""The models that a tally learns by: from code or from settings, and the consent to send text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from typing import Any, TypeVar

from tallystick.errors import SettingsError
from tallystick.extension import Extension
from tallystick.memory import MemoryContext
from tallystick.ports import (
    Learner,
    Models,
    StructuredModel,
    Summarizer,
    TokenCounter,
)
from tallystick.recorder import RecorderContext
from tallystick.recorder.outbound import Outbound
from tallystick.recorder.payloads import require_seal
from tallystick.records import Actor, ProviderDeclaration
from tallystick.settings import Settings
from tallystick.storage import Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal
from tallystick.tokens.prices import PriceTable, cost_of

LearnerLike = Learner | StructuredModel
SummarizerLike = Summarizer | StructuredModel
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
    named = tuple(named_model(name, settings) for name in settings.learning_models)
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
        names.add(f"embedder:{memory.embedder.fingerprint}")
    if memory.reranker is not None and not getattr(memory.reranker, "local", False):
        names.add(f"reranker:{type(memory.reranker).__name__}")
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


def named_model(
    name: str, settings: Settings, *, setting: str = "learning_models"
) -> StructuredModel:
    """Return a model that a setting names, as `adapter:model`. Raises SettingsError for an adapter
    that is not installed, a model that its adapter cannot make, and one far away that is not
    allowed.
    """
    adapter, _, model = name.partition(":")
    points = {point.name: point for point in entry_points(group=_GROUP)}
    if adapter not in points or not model:
        raise SettingsError(
            f"{setting}: {name!r} is no model. Write it as ADAPTER:MODEL, with one of "
            f"{', '.join(sorted(points)) or 'no adapter, as none is installed'}."
        )
    try:
        made: StructuredModel = points[adapter].load()(model)
    except Exception as error:  # a runtime raises what it likes for a name, a package, a key
        raise SettingsError(
            f"{setting}: {name!r} cannot be made. {adapter} says: {error}"
        ) from error
    declared: ProviderDeclaration = made.declaration
    if settings.local_only and not declared.local and name not in settings.learning_allow:
        raise SettingsError(
            f"{setting}: {name!r} would be sent what is remembered, and it is not on this "
            f"machine. Add it to `learning_allow`, or pass the model in code."
        )
    return made


def list_models(value: P | Sequence[P] | None) -> tuple[P, ...]:
    """Return the models that an option names: none, one or several."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Iterable) else (value,)
