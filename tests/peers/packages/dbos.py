"""PydanticAI's DBOSDurability: what DBOS replays is recorded once."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent, DBOSDurability
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from tests.peers.packages.common import opened_tally, promise, verifies

from tallystick.errors import InvalidInput
from tallystick_pydantic_ai import Tallystick


def _noted(messages: Any, info: Any) -> ModelResponse:
    return ModelResponse([TextPart("Noted.")])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, opened_tally() as tally:
        database = f"sqlite:///{Path(folder) / 'dbos.sqlite'}"
        DBOS(config={"name": "app", "system_database_url": database, "log_level": "ERROR"})
        model = FunctionModel(_noted)
        # recipe
        agent = Agent(
            model,
            name="clerk",
            capabilities=[DBOSDurability(), Tallystick(tally, capture="user")],
        )

        @DBOS.workflow()
        async def answer(text: str) -> str:
            return (await agent.run(text)).output

        # end
        refused = DBOSAgent(Agent(model, name="refused", capabilities=[Tallystick(tally)]))
        silent = DBOSAgent(
            Agent(model, name="silent", capabilities=[Tallystick(tally, record=False)])
        )
        DBOS.launch()

        async def talk() -> str:
            for _ in range(2):
                with SetWorkflowID("one"):
                    assert await answer("I like windows.") == "Noted."
            assert (await silent.run("Hello?")).output == "Noted."
            try:
                await refused.run("Hello?")
            except InvalidInput as error:
                return str(error)
            return ""

        refusal = asyncio.run(talk())
        DBOS.destroy()
        view = tally.bind()
        promise(
            "A workflow is one run, captured once; one that is repeated by its id adds nothing.",
            (
                [(run.agent_name, run.status) for run in view.recordings.runs()],
                [("clerk", "completed")],
            ),
            ([turn.content for turn in view.memories(kinds=["turn"])], ["I like windows."]),
            verifies(view),
        )
        promise(
            "`DBOSAgent` is refused; it works with `Tallystick(tally, record=False)`.",
            "DBOSDurability" in refusal,
        )


main()
