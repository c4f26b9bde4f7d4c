"""Measure: what each item that may be seen says, as a digest, and weighs, in tokens.

Runs after policy's decision, so that a denied item is never counted by content.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tallystick.compiler.outlines import label, quote, quote_item
from tallystick.compiler.state import CONVERSATION, State
from tallystick.records import ContextItem, text_digest
from tallystick.records.escaping import as_item

_NEVER_QUOTED = CONVERSATION | {"system", "policy", "tool_schema"}
"""Kinds without a label in a prompt; a role in front of a quoted turn is counted with the target's
overhead.
"""


def measure(state: State) -> State:
    """The state with a digest and a token count for every item that was not denied.

    The count is the compiler's own; a larger estimate given with an item stands, because a caller
    may know of more than the text (call arguments, an image), while a smaller one could only break
    the budget.
    """
    tokens: dict[str, int] = {}
    digests: dict[str, str] = {}
    labels: dict[str, int] = {}
    escapes: dict[str, int] = {}
    for item_id, item in state.items.items():
        verdict = state.verdicts.get(item_id)
        if verdict is not None and verdict.effect != "redact":
            continue
        counted = state.count(item.content) if item.content else 0
        tokens[item_id] = max(counted, item.token_estimate or 0)
        if item.kind not in _NEVER_QUOTED:
            if before := label(item):
                labels[item_id] = state.count(before)
            escapes[item_id] = escaping_tokens(state, item)
        digests[item_id] = content_digest(item, item.content)
    state = replace(state, tokens=tokens, digests=digests, labels=labels)
    costs = {
        item_id: count + state.overhead(item_id) + escapes.get(item_id, 0)
        for item_id, count in tokens.items()
    }
    return replace(state, costs=costs)


def escaping_tokens(state: State, item: ContextItem) -> int:
    """Return the tokens by which an item is longer in a frame than it is itself."""
    plain, shown = quote_item(item), str(quote(item))
    return 0 if shown == plain else max(0, state.count(shown) - state.count(plain))


def shown_tokens(state: State, item: ContextItem, content: str) -> int:
    """Return the tokens of a shorter content of an item, as it is shown where it is quoted."""
    if item.kind in _NEVER_QUOTED - CONVERSATION:
        return state.count(content)
    return max(state.count(content), state.count(as_item(content)))


def content_digest(item: ContextItem, content: str) -> str:
    """The digest of what `item` says when it says `content`: the same for equal items, whatever
    their ids.
    """
    # The head is one line of JSON, so that it cannot be mistaken for text.
    head = f'"{item.kind}"'
    if item.tool_call_ids or item.tool_call_id is not None:
        head = json.dumps([item.kind, item.tool_call_ids, item.tool_call_id])
    return text_digest("context-item", f"{head}\n{content}")
