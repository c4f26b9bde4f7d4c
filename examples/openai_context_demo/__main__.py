"""One request to OpenAI, whole: candidates, compile, request, answer, receipt.

python -m examples.openai_context_demo
python -m examples.openai_context_demo --model gpt-5        # sends it, with OPENAI_API_KEY
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from examples.openai_context_demo.offline import offline_client
from examples.running import check_receipts, example_options

from tallystick import Actor, ContextItem, Tally
from tallystick_openai import ResponsesProvider

QUESTION = "May Ann eat the lasagne on Friday?"
MENU = {
    "monday": "Monday: tomato soup with rice. Vegan.",
    "friday": "Friday: lasagne with spinach, ricotta and walnut pesto.",
    "parking": "Guests park behind the mill; the gate is locked at eight in the evening.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask one question, and print every stage of it."""
    parser = example_options(__doc__)
    parser.add_argument("--model", help="send it to this model, with OPENAI_API_KEY")
    options = parser.parse_args(arguments)
    client = None if options.model else offline_client("No: the pesto has walnuts in it.")
    provider = ResponsesProvider(options.model or "gpt-5", client=client)
    with Tally.open(options.tally, owner=Actor(user="local", role="operator")) as tally:
        kitchen = tally.bind(Actor(user="kitchen"))
        kitchen.remember("Ann is allergic to nuts.", kind="constraint", subject="Ann")

        candidates = [
            ContextItem(id="system", kind="system", content="You advise a kitchen. Be brief."),
            *(
                ContextItem(id=f"menu:{day}", kind="retrieval_doc", content=text)
                for day, text in MENU.items()
            ),
            *kitchen.recall(QUESTION),
            ContextItem(id="question", kind="user_msg", content=QUESTION),
        ]
        with kitchen.run("adviser", goal=QUESTION):
            compiled = kitchen.compile(candidates, budget=400)
            call = kitchen.call_model(compiled, provider=provider)

        print("Candidates, and what became of each:")
        for decision in compiled.decisions:
            print(f"  {decision.decision:8} {decision.item_id[-12:]:12}  {decision.reason_code}")
        print("\nThe request:")
        print(json.dumps(provider.render(compiled), indent=2, ensure_ascii=False))
        print(f"\nThe answer: {call.text}")
        print(f"It took {call.usage['input_tokens']} tokens and cost {call.cost}.")
        print(f"\nThe receipt: {kitchen.recordings.receipt(call.step_id).digest}")
        print(check_receipts(tally))


if __name__ == "__main__":
    main()
