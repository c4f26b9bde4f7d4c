"""A support desk as a FastAPI service: any number of workers on one tally.

Each customer has a conversation and a memory of their own. A refund waits until a person of the
staff has decided, on whichever worker.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from examples.running import OPERATOR
from examples.support_service.scripted import ScriptedChatModel
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from tallystick import Actor, PolicyRule, Tally
from tallystick.records import PolicyConditions
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver

RULES = [
    PolicyRule(
        id="staff-refunds",
        name="A person of the staff decides about refunds",
        description="look at the order before money goes back",
        effect="require_approval",
        applies_to="tool_call",
        conditions=PolicyConditions(tool=("refund",)),
    )
]


class Message(BaseModel):
    """What a customer says."""

    text: str


class Verdict(BaseModel):
    """What a person of the staff decides."""

    approve: bool
    reason: str


@tool
def refund(order: int) -> str:
    """Pay back what an order cost."""
    return f"refunded order {order}"


def current_user(authorization: Annotated[str, Header()]) -> str:
    """Return who calls, from the credential alone. Here you check a token."""
    return authorization.removeprefix("Bearer ")


def current_staff(user: Annotated[str, Depends(current_user)]) -> Actor:
    """Return the member of the staff who calls. Raises HTTPException for everybody else."""
    if not user.startswith("staff-"):
        raise HTTPException(403, "This is for the staff.")
    return Actor(user=user, role="operator")


User = Annotated[str, Depends(current_user)]
Staff = Annotated[Actor, Depends(current_staff)]


def create_app(folder: str, *, model: Callable[[], BaseChatModel] = ScriptedChatModel) -> FastAPI:
    """Return the service on the tally in `folder`, which each worker opens for itself."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with Tally.open(folder, owner=OPERATOR, rules=RULES) as tally:
            app.state.tally = tally
            app.state.agent = create_agent(
                model(),
                [refund],
                middleware=[TallyMiddleware(tally, agent_name="support", capture="user")],
                checkpointer=TallySaver(tally),
            )
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/chats/{thread}")
    async def say(request: Request, thread: str, message: Message, user: User) -> dict[str, Any]:
        said = {"messages": [HumanMessage(message.text)]}
        return _answer(await request.app.state.agent.ainvoke(said, _config(user, thread)))

    @app.get("/chats/{thread}")
    async def go_on(request: Request, thread: str, user: User) -> dict[str, Any]:
        """Go on where the conversation waited: what was decided meanwhile counts."""
        agent, config = request.app.state.agent, _config(user, thread)
        state = await agent.aget_state(config)
        if not state.values:
            raise HTTPException(404, "You have no such conversation.")
        return _answer(await agent.ainvoke(None, config) if state.next else state.values)

    @app.get("/approvals")
    def waiting(request: Request, staff: Staff) -> list[dict[str, Any]]:
        tally: Tally = request.app.state.tally
        return [
            {"id": each.id, "scope": str(scope), "arguments": each.arguments, "why": each.reason}
            for scope in tally.scopes()
            for each in tally.bind(staff, scope=scope).approvals.list()
        ]

    @app.post("/approvals/{approval_id}")
    def decide(
        request: Request, approval_id: str, scope: str, verdict: Verdict, staff: Staff
    ) -> dict[str, Any]:
        bound = request.app.state.tally.bind(staff, scope=scope)
        act = bound.approvals.approve if verdict.approve else bound.approvals.deny
        return {"state": act(approval_id, reason=verdict.reason).state}

    return app


def app_of_worker() -> FastAPI:
    """Return the service for a worker process: `uvicorn --factory …:app_of_worker`."""
    return create_app(os.environ["SUPPORT_TALLY"])


def _config(user: str, thread: str) -> Any:
    return {"configurable": {"user_id": user, "thread_id": thread}}


def _answer(state: dict[str, Any]) -> dict[str, Any]:
    if state.get("__interrupt__"):
        return {"answer": "A colleague looks at it.", "waits": True}
    return {"answer": state["messages"][-1].text, "waits": False}
