"""The models of the example, scripted: they answer without a provider."""

from __future__ import annotations

from agents import Model
from agents.testing import ScriptedModel, assistant_message, function_call


def receiving_model() -> Model:
    """Return a model that hands over to the clerk, and in the next conversation answers itself."""
    return ScriptedModel(
        [
            [function_call("transfer_to_clerk", {}, call_id="over")],
            [assistant_message("Your lamp was paid back, and you like answers by mail.")],
        ]
    )


def paying_model() -> Model:
    """Return a model that pays back what the user asks for."""
    refund = {"order": "7", "euros": 120}
    return ScriptedModel(
        [
            [function_call("refund", refund, call_id="pay")],
            [assistant_message("120 euros for order 7 are on their way.")],
        ]
    )
