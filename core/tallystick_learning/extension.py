"""The extension: what learning adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tallystick.errors import SettingsError
from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

if TYPE_CHECKING:
    from tallystick.jobs import Handler
    from tallystick.memory import MemoryContext
    from tallystick.ports import Models
    from tallystick.recorder.outbound import Outbound
    from tallystick.settings import Settings

_REFLECT = (
    "denied",
    "invalid_input",
    "not_found",
    "rate_limited",
    "extraction_error",
    "model_unavailable",
    "credential_refused",
    "model_failed",
    "model_refused",
    "egress_denied",
    "budget_spent",
)

_operation = partial(
    Operation, effect="change", errors=_REFLECT, face=Late("tallystick_learning.learning:Learning")
)


def _require_use(settings: Settings, models: Models) -> None:
    """Raise SettingsError for a model that nothing would call, and for learning without one."""
    is_on = settings.learning != "off" or settings.reflection != "off"
    if not is_on and (models.learners or settings.learning_model):
        raise SettingsError(
            "`learning` and `reflection` are off, so that no learner is ever called. "
            "Set `learning` to shadow, review or apply, `reflection` to review, or give none."
        )
    is_of_agents = settings.learning == "apply" and settings.reflection == "off"
    if is_on and not (models.learners or settings.learning_model or is_of_agents):
        on = " and ".join(
            f"`{name}`" for name in ("learning", "reflection") if getattr(settings, name) != "off"
        )
        raise SettingsError(
            "Without a model, or an agent's own proposal, nothing is learned. Give a model as "
            f"`learning_model`, or set {on} to off: an agent still remembers "
            "what it concludes by itself, such as remember(…, kind='preference'). With "
            "`learning` at apply and no model the changes that agents give are applied."
        )


def _handlers(context: MemoryContext, outbound: Outbound) -> Sequence[Handler]:
    """Return who carries out the jobs of what is on: others wait for a process that has a model."""
    from tallystick_learning.given import JudgeHandler
    from tallystick_learning.learner import learning_context
    from tallystick_learning.learning_jobs import LearningHandler, has_learner
    from tallystick_learning.reflection_jobs import ReflectionHandler

    learning, settings = learning_context(context, outbound), context.settings
    handlers: list[Handler] = []
    if settings.learning != "off":
        handlers.append(JudgeHandler(context))
    if has_learner(context):
        handlers.append(LearningHandler(learning))
    if settings.reflection != "off":
        handlers.append(ReflectionHandler(learning, settings.reflection))
    return handlers


EXTENSION = Extension(
    require_use=_require_use,
    job_for=Late("tallystick_learning.learning_jobs:learning_job"),
    plan_change=Late("tallystick_learning.given:plan_change"),
    on_show=Late("tallystick_learning.given:follow_turn"),
    after_remember=Late("tallystick_learning.learning_jobs:learn_now"),
    handlers=_handlers,
    operations=(
        _operation(
            "reflect",
            "Reflect",
            "Have a model propose the decisions, procedures, plans, tasks, artifacts, claims and "
            "relations that memories state; each waits for a person.",
            verb="learning.reflect",
        ),
        _operation(
            "end_session",
            "End a session",
            "Learn from a conversation that ended, or reflect on it, where the tally does that; "
            "`processing` says whether it did.",
            verb="learning.end_session",
        ),
    ),
)
