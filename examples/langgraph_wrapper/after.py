"""A travel desk in LangGraph: it answers, books in a subgraph after a person said yes, and notes
what it booked for each user.
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.config import get_config, get_store
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tallystick import Tally
from tallystick_langchain import TallyCallbackHandler, compile_messages
from tallystick_langgraph import TallySaver, TallyStore

SYSTEM = "You are a travel desk. Propose a trip as `trip: …`; answer questions from what you know."


class Desk(MessagesState):
    """The conversation, and the trip that is proposed."""

    trip: str


def build_desk(model: BaseChatModel, tally: Tally) -> Any:
    """Return the graph of the desk."""

    def answer(state: Desk) -> dict[str, Any]:
        context = compile_messages(
            state, tally, budget=8_000, system=SYSTEM, namespace=("trips", "{user_id}")
        )
        reply = model.invoke(context)
        return {"messages": [reply], "trip": reply.text.partition("trip: ")[2]}

    def confirm(state: Desk) -> dict[str, Any]:
        return {"trip": state["trip"] if interrupt(f"Book {state['trip']}?") == "yes" else ""}

    def book(state: Desk) -> dict[str, Any]:
        user = get_config().get("configurable", {})["user_id"]
        if state["trip"]:
            get_store().put(("trips", user), state["trip"], {"text": f"Booked: {state['trip']}"})
        return {
            "messages": [("ai", f"Booked: {state['trip']}" if state["trip"] else "Not booked.")]
        }

    booking = StateGraph(Desk).add_sequence([confirm, book]).add_edge(START, "confirm").compile()
    builder = StateGraph(Desk).add_node(answer).add_node("booking", booking)
    builder.add_edge(START, "answer")
    builder.add_conditional_edges("answer", lambda state: "booking" if state["trip"] else END)
    return builder.compile(checkpointer=TallySaver(tally), store=TallyStore(tally))


def config_of(user: str, thread: str, tally: Tally) -> Any:
    """Return the config of a call for this user."""
    return {
        "configurable": {"user_id": user, "thread_id": f"{user}-{thread}"},
        "callbacks": [TallyCallbackHandler(tally)],
    }
