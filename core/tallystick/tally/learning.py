"""How a tally learns: its providers, from code or from settings, and the consent to send text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import TypeVar, cast

from tallystick.errors import SettingsError
from tallystick.jobs import (
    LearningContext,
    ModelDecider,
    ModelExtractor,
    ModelSummarizer,
    Outbound,
)
from tallystick.memory import MemoryContext
from tallystick.ports import Decider, Extractor, StructuredModel, Summarizer, TokenCounter
from tallystick.recorder import RecorderContext
from tallystick.recorder.sealing import require_seal
from tallystick.records import Actor, ProviderDeclaration
from tallystick.settings import Settings
from tallystick.storage import Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal
from tallystick.tokens.prices import PriceTable, cost_of

ExtractorLike = Extractor | StructuredModel
DeciderLike = Decider | StructuredModel
SummarizerLike = Summarizer | StructuredModel
P = TypeVar("P")

_GROUP = "tallystick.structured_models"


def learning_context(
    memory: MemoryContext,
    settings: Settings,
    recorder: RecorderContext,
    *,
    extractors: ExtractorLike | Sequence[ExtractorLike] | None,
    deciders: DeciderLike | Sequence[DeciderLike] | None,
    summarizer: SummarizerLike | None,
    prices: PriceTable | None,
    counter: Callable[[str | None], TokenCounter],
) -> LearningContext:
    """Return how a tally learns. Raises SettingsError for a provider that nothing would call, or
    that may not be sent text.
    """
    _require_use(settings, _several(extractors), _several(deciders), summarizer)
    named = [named_model(name, settings) for name in settings.learning_models]
    if summarizer is None and settings.summary_model is not None:
        summarizer = named_model(settings.summary_model, settings, setting="summary_model")
    chosen_extractors = [
        each if isinstance(each, Extractor) else ModelExtractor(cast("StructuredModel", each))
        for each in _several(extractors) or named
    ]
    chosen_deciders = [
        each if isinstance(each, Decider) else ModelDecider(cast("StructuredModel", each))
        for each in _several(deciders) or named
    ]

    chosen_summarizer = (
        summarizer
        if summarizer is None or isinstance(summarizer, Summarizer)
        else ModelSummarizer(summarizer)
    )
    _require_prices(settings, [*chosen_extractors, *chosen_deciders, chosen_summarizer], prices)
    _require_kept(settings)

    return LearningContext(
        memory,
        Outbound(
            memory.store,
            memory.remote_redactor,
            recorder,
            counter,
            settings.learning_budget,
            lambda provider, model, usage: cost_of(provider, [model or ""], usage, table=prices),
            settings.keep_placeholders,
            [
                each.declaration
                for each in (*chosen_extractors, *chosen_deciders, chosen_summarizer)
                if each is not None
            ],
        ),
        cast("Sequence[Extractor]", chosen_extractors),
        cast("Sequence[Decider]", chosen_deciders),
        chosen_summarizer,
    )


def _require_use(
    settings: Settings,
    extractors: Sequence[ExtractorLike],
    deciders: Sequence[DeciderLike],
    summarizer: SummarizerLike | None,
) -> None:
    """Raise SettingsError for a model that nothing would call, and for learning without one."""
    is_on = settings.learning != "off" or settings.reflection != "off"
    if not is_on and (extractors or deciders or settings.learning_models):
        raise SettingsError(
            "`learning` and `reflection` are off, so that no extractor or decider is ever called. "
            "Set one of them to review, or give none."
        )
    if is_on and not (extractors or settings.learning_models):
        on = " and ".join(
            f"`{name}`" for name in ("learning", "reflection") if getattr(settings, name) != "off"
        )
        raise SettingsError(
            "Without a model, or an agent's own proposal, nothing is learned. Give a model as "
            f"`extractor=` or in `learning_models`, or set {on} to off: an agent still remembers "
            "what it concludes by itself, such as remember(…, kind='preference')."
        )
    if summarizer is not None and not settings.graph:
        raise SettingsError(
            "The setting `graph` is off, so that there are no communities and the summarizer is "
            "never called. Turn it on, or give none."
        )
    if settings.summary_model is not None and not settings.graph:
        raise SettingsError(
            "`summary_model` names a model, and `graph` is off, so that there are no communities "
            "to summarize. Turn `graph` on, or name none."
        )


def _require_prices(
    settings: Settings,
    providers: Sequence[Extractor | Decider | Summarizer | None],
    prices: PriceTable | None,
) -> None:
    """Raise SettingsError where money is limited and a model far away has no known price."""
    limits = [
        name for name, most in settings.learning_budget if "micros" in name and most is not None
    ]
    if not limits:
        return
    for provider in providers:
        if provider is None or provider.declaration.local:
            continue
        declared, usage = provider.declaration, {"input_tokens": 1, "output_tokens": 1}
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


def note_consent(store: Store, context: LearningContext, actor: Actor) -> None:
    """Journal that a developer passed providers, an embedder or a reranker which may send text to
    other machines, once for each opening.
    """
    providers: list[Extractor | Decider | Summarizer] = [*context.extractors, *context.deciders]
    if context.summarizer is not None:
        providers.append(context.summarizer)
    names = {
        f"{each.declaration.name}:{each.declaration.model or ''}"
        for each in providers
        if not each.declaration.local
    }
    memory = context.memory
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


def _several(value: P | Sequence[P] | None) -> list[P]:
    if value is None:
        return []
    if isinstance(value, Iterable):
        return list(value)
    return [value]
