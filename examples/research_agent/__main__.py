"""A research agent: a corpus, notes with their sources, a contradiction kept, a report that cites.

It may read the web and may not publish: a rule denies that in production. A second agent, of low
trust, is given summaries and nothing else.

    python -m examples.research_agent
    python -m examples.research_agent --model openai:gpt-5
"""

from __future__ import annotations

from collections.abc import Sequence

from examples.research_agent.scripted import researching_model, summarising_model
from examples.research_agent.tools import RULES, TOOL_CLASSES, remember_corpus, research_tools
from examples.running import OPERATOR, check_receipts, example_options
from pydantic_ai import Agent

from tallystick import Tally
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_pydantic_ai import Tallystick

QUESTION = "When was the Heron Bridge opened, and how long is it?"
INSTRUCTIONS = (
    "You research. Note each claim with the document that states it, and what it contradicts. "
    "Then publish."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Research a question, and print the report and what each agent was given."""
    parser = example_options(__doc__)
    parser.add_argument("--model", help="a real model, such as openai:gpt-5")
    options = parser.parse_args(arguments)
    with Tally.open(
        options.tally,
        owner=OPERATOR,
        rules=RULES,
        tool_classes=TOOL_CLASSES,
        settings=Settings.read(environment="production"),
    ) as tally:
        researcher = tally.bind(OPERATOR.model_copy(update={"agent": "researcher"}))
        summariser = tally.bind(OPERATOR.model_copy(update={"agent": "summariser"}))
        remember_corpus(researcher)

        agent = Agent(
            options.model or researching_model(),
            instructions=INSTRUCTIONS,
            tools=research_tools(researcher),
            capabilities=[Tallystick(researcher, tools=False, agent_name="researcher")],
        )
        print(agent.run_sync(QUESTION).output)
        report = write_report(researcher)
        print(f"\n{report}\n")

        reader = Agent(
            options.model or summarising_model(),
            capabilities=[Tallystick(summariser, tools=False, agent_name="summariser")],
        )
        print(f"In one sentence: {reader.run_sync('What is known of the Heron Bridge?').output}")
        show_denials(researcher)
        print(f"\n{check_receipts(tally)}")


def write_report(bound: BoundTally) -> str:
    """Return the report on everything that was noted, with the source of each claim, and remember
    it as a summary.
    """
    claims = bound.memories(kinds=("claim",))[::-1]
    lines = [f"{claim.content} [{number}]" for number, claim in enumerate(claims, 1)]
    for number, claim in enumerate(claims, 1):
        earlier = {each.id for each in claims[: number - 1]}
        if earlier.intersection(bound.inspect(claim.id).contradicted_by):
            lines.append(f"Sources disagree: [{number}] contradicts an earlier one. Both stay.")
    for number, claim in enumerate(claims, 1):
        addresses = [bound.source(source.source_id).uri for source in claim.sources]
        lines.append(f"[{number}] {addresses[0]}")
    report = "\n".join(lines)
    bound.remember(
        report, kind="summary", tags=["summary"], derived_from=[claim.id for claim in claims]
    )
    return report


def show_denials(bound: BoundTally) -> None:
    """Print what rules denied to the agents, as their receipts have it."""
    for run in reversed(bound.recordings.runs()):
        for step in bound.recordings.steps(run.id):
            for entry in bound.recordings.entries(step.id):
                if entry.kind == "policy_check" and entry.summary["outcome"] == "denied":
                    print(f"{run.agent_name}: {entry.summary['tool']} was denied by a rule")
                if entry.kind == "compiled":
                    _, compiled = bound.recordings.compiled(step.id)
                    reasons = [decision.reason_code for decision in compiled.decisions]
                    print(f"{run.agent_name}: {reasons.count('policy_denied')} memories withheld")


if __name__ == "__main__":
    main()
