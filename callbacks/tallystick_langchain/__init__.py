"""LangChain on a tally: `TallyCallbackHandler` records runs, model calls, tools and retrievers with receipts."""

from tallystick.errors import require

require("langchain_core", extra="langchain")

from tallystick_langchain.handler import TallyCallbackHandler  # noqa: E402
from tallystick_langchain.replay import chat_model_call  # noqa: E402

__all__ = ["TallyCallbackHandler", "chat_model_call"]
