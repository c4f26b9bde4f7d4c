"""What a LangGraph server serves in test_langgraph_server.py: two graphs, on one tally.

The server executes this file without making it a module, where annotations have to be evaluated.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.channels import DeltaChannel
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph_sdk import Auth

from tallystick import Tally
from tallystick_langgraph import TallySaver, TallyStore

_reducer: Any = _messages_delta_reducer
tally = Tally.open(os.environ["SERVED_TALLY"])


class Delta(TypedDict):
    """State whose messages are a DeltaChannel, as those of deepagents are."""

    messages: Annotated[list[Any], DeltaChannel(_reducer)]


@asynccontextmanager
async def saver() -> AsyncIterator[TallySaver]:
    """Give the server its checkpointer."""
    yield TallySaver(tally)


@asynccontextmanager
async def store() -> AsyncIterator[TallyStore]:
    """Give the server its store."""
    yield TallyStore(tally)


async def answer(state: Any) -> dict[str, Any]:
    """Note what was said, and answer."""
    said = state["messages"][-1].text
    await get_store().aput(("notes",), said, {"text": said})
    return {"messages": [AIMessage(f"noted {said}")]}


plain = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile()
delta = StateGraph(Delta).add_node(answer).add_edge(START, "answer").compile()
auth = Auth()


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Any:
    """Take the user from a header, in place of a token."""
    user = headers.get(b"x-user", b"").decode()
    if not user:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Name the user.")
    return {"identity": user, "is_authenticated": True}
