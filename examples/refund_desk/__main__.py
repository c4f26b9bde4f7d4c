"""A desk of two agents of the OpenAI Agents SDK: one receives, one pays, and a person approves.

The first hands over to the second, which may pay back only what a person has approved; the rule is
the tally's, and the question the SDK's own interruption. The session lasts: the next conversation
goes on with it, and with what the user said of herself.

    python -m examples.refund_desk
    python -m examples.refund_desk --model gpt-5
"""

from __future__ import annotations

from collections.abc import Sequence

from agents import Agent, function_tool, set_tracing_disabled
from examples.refund_desk.scripted import paying_model, receiving_model
from examples.running import OPERATOR, check_receipts, example_options

from tallystick import Actor, PolicyRule, Tally
from tallystick_openai_agents import TallyRunner, TallySession

ADA = Actor(user="ada", agent="desk")
RULE = PolicyRule.load(
    {
        "id": "refunds",
        "name": "A person approves each refund",
        "effect": "require_approval",
        "applies_to": "tool_call",
        "conditions": {"tool": ["refund"]},
    }
)


@function_tool
def refund(order: str, euros: int) -> str:
    """Pay an order back."""
    return f"{euros} euros for order {order} are paid back"


def main(arguments: Sequence[str] | None = None) -> None:
    """Have a conversation with a refund, and another one that remembers it."""
    parser = example_options(__doc__)
    parser.add_argument("--model", help="a real model, such as gpt-5")
    options = parser.parse_args(arguments)
    # The SDK would send a trace of each run to OpenAI where a key is set.
    set_tracing_disabled(True)
    clerk = Agent(
        "clerk",
        instructions="You pay back orders.",
        model=options.model or paying_model(),
        tools=[refund],
    )
    receiver = Agent(
        "receiver",
        instructions="You receive users. Refunds are the clerk's.",
        model=options.model or receiving_model(),
        handoffs=[clerk],
    )
    with Tally.open(options.tally, owner=OPERATOR, rules=[RULE]) as tally:
        runner = TallyRunner(tally, actor=ADA, capture="user")
        session = TallySession(tally, "ada-1", actor=ADA)
        request = "My lamp of order 7 is broken. I want its 120 euros back, and answers by mail."
        result = runner.run_sync(receiver, request, session=session)
        while result.interruptions:
            state = result.to_state()
            for question in result.interruptions:
                approval = runner.approval_of(question)
                assert approval is not None
                print(f"A person approves: {question.tool_name} {question.arguments}")
                state.approve(question)
            result = runner.run_sync(receiver, state, session=session)
        print(result.final_output)

        later = "What became of my lamp?"
        print(runner.run_sync(receiver, later, session=session).final_output)
        show_runs(tally)
        print(f"\n{check_receipts(tally)}")


def show_runs(tally: Tally) -> None:
    """Print who ran, how it ended, and who approved."""
    bound = tally.bind(ADA)
    for run in reversed(bound.recordings.runs()):
        names = [step.name for step in bound.recordings.steps(run.id) if step.name]
        print(f"{run.agent_name}: {run.status} ({', '.join(names)})")
    for approval in tally.bind(Actor(user="ada")).approvals.list(state=None):
        print(f"{approval.action} was approved by {(approval.decided_by or {})['user']}")


if __name__ == "__main__":
    main()
