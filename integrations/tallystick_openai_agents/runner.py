"""TallyRunner: the SDK's own runner, with memory, rules and receipts around each run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

from agents import Agent, RunContextWrapper, RunHooks, RunResult, RunState, UserError
from agents.items import ToolApprovalItem
from agents.lifecycle import RunHooksBase
from agents.result import RunResultStreaming
from agents.run import AgentRunner
from agents.run_config import RunOptions

from tallystick.aio import begin_in_thread, end_in_thread
from tallystick.errors import TallystickError
from tallystick.kit.agent_runs import AgentPiece
from tallystick.kit.binder import id_text
from tallystick_openai_agents.messages import user_text
from tallystick_openai_agents.model import RunModel
from tallystick_openai_agents.rules import (
    agent_tools,
    agents_from,
    answers_of,
    config_of,
    pending_handoffs,
    take_handoffs_in_hand,
    take_in_hand,
)
from tallystick_openai_agents.under_way import Hooks, RunUnderWay


class TallyRunner(AgentPiece, AgentRunner):
    """Runs agents as `Runner` does: `await TallyRunner(tally).run(agent, "…", session=session)`.

    Each run is recorded with receipts; each request is compiled to `budget` tokens with what is
    remembered; the rules of the tally hold over tools and requests. A tool call that waits for a
    person interrupts the run, as the SDK's own do.
    """

    _runtime, _piece = "openai_agents", "TallyRunner"

    def approval_of(self, interruption: ToolApprovalItem) -> str | None:
        """Return the id of the approval that an interruption of a run waits for, by which somebody
        may grant it elsewhere; None where no rule asks.
        """
        return self.asked.get(interruption.call_id or "")

    async def run(
        self,
        starting_agent: Agent[Any],
        input: str | list[Any] | RunState[Any],
        **kwargs: Unpack[RunOptions[Any]],
    ) -> RunResult:
        """Same as `Runner.run`; `run_sync` and `run_streamed` are those of `Runner` too. Raises
        Denied, ActionDenied, ApprovalRequired for a request, and CompileError besides.
        """
        run = await begin_in_thread(
            lambda: self._begin(starting_agent, input, kwargs), lambda begun: begun.end("cancelled")
        )
        try:
            with run.active():
                result = await super().run(starting_agent, input, **run.options)
        except BaseException as error:
            await end_in_thread(run.fail, error)
            _raise_own(error)
            raise
        finally:
            await run.close()
        await end_in_thread(run.finish, result)
        return result

    def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: str | list[Any] | RunState[Any],
        **kwargs: Unpack[RunOptions[Any]],
    ) -> RunResultStreaming:
        """Same as `Runner.run_streamed`; the end of its events acknowledges what was recorded."""
        run = self._begin(starting_agent, input, kwargs)
        try:
            with run.active():
                result = super().run_streamed(starting_agent, input, **run.options)
        except BaseException as error:
            run.fail(error)
            raise
        reading = _Reading()
        ended = asyncio.create_task(_end(run, result, reading))
        events = result.stream_events

        async def stream_events() -> AsyncIterator[Any]:
            reading.over = asyncio.Event()
            try:
                async with aclosing(cast(Any, events())) as stream:
                    async for event in stream:
                        yield event
            except Exception as error:
                reading.error = error
                _raise_own(error)
                raise
            finally:
                reading.over.set()
                await asyncio.shield(ended)

        cast(Any, result).stream_events = stream_events
        return result

    def _begin(
        self,
        agent: Agent[Any],
        input: str | list[Any] | RunState[Any],
        given: RunOptions[Any],
    ) -> RunUnderWay:
        """Return a run that has begun, with the options to run it with. Raises Denied."""
        options = cast(dict[str, Any], {**given})
        given_config = options.get("run_config")
        config = config_of(given_config)
        is_ours = isinstance(given_config, dict) and "model_provider" not in given_config
        if isinstance(config.model, RunModel):
            # An agent that is a tool goes on with the configuration of the agent around it.
            config = config.model.config
        context = options.get("context")
        state = input if isinstance(input, RunState) else None
        if context is None and state is not None:
            context = state._context
        session = getattr(options.get("session"), "session_id", None)
        session = id_text(session or options.get("conversation_id") or config.group_id) or None
        value = context.context if isinstance(context, RunContextWrapper) else context
        bound = self.binder.bound(self.binder.call(context=value, session=session))
        words = user_text(state._original_input if state is not None else cast(Any, input))
        run = RunUnderWay(self, bound, words, session)
        run.provider = config.model_provider if given_config is None or is_ours else None
        current = agent if state is None or state._current_agent is None else state._current_agent
        run.start(current.name)
        if state is not None:
            run.answers = answers_of(state)
            run.handoffs = pending_handoffs(state, current)
            with run.active():
                run.note_rejections()
        take_in_hand(agent_tools(current), asks=run.asks)
        take_handoffs_in_hand(over for each in agents_from(current) for over in each.handoffs)
        hooks = options.get("hooks") or RunHooks()
        run.options = {
            **options,
            # Hooks that are none the SDK refuses itself.
            "hooks": Hooks(run, hooks) if isinstance(hooks, RunHooksBase) else hooks,
            "run_config": replace(
                config,
                model=RunModel(run, config),
                call_model_input_filter=run.input_filter(config.call_model_input_filter),
            ),
        }
        return run


def _raise_own(error: BaseException) -> None:
    """Raise the error of ours that the SDK put into one of its own."""
    cause = error.__cause__
    if isinstance(error, UserError) and isinstance(cause, TallystickError):
        raise cause


@dataclass
class _Reading:
    """The reading of a stream: some errors of a run are first raised there."""

    over: asyncio.Event | None = None
    error: BaseException | None = None


async def _end(run: RunUnderWay, result: RunResultStreaming, reading: _Reading) -> None:
    task = result.run_loop_task
    assert task is not None
    await asyncio.wait({task})
    await run.close()
    error: BaseException | None = result.run_loop_exception
    if error is None and task.cancelled():
        error = asyncio.CancelledError()
    if error is None and result.final_output is None and not result.interruptions:
        if reading.over is not None:
            await reading.over.wait()
        error = reading.error
    await end_in_thread(*((run.finish, result) if error is None else (run.fail, error)))
