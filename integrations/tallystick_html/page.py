"""A receipt as one page: a file without script that opens from disk and holds its own bundle.

The page is made of the bundle alone, so that the same bundle gives the same page: `says_its_bundle`
makes it again, and a page that was changed around its bundle is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from tallystick.errors import InvalidRecord
from tallystick.kit.transcripts import (
    Message,
    OtherPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    answer_messages,
    request_messages,
    tool_result,
)
from tallystick.recorder.bundle import BundledRun, BundledStep, bundle_in, bundle_link, read_bundle
from tallystick.records import COVERAGE_TITLES, CompiledContext, Json, StepEntry
from tallystick.records.escaping import Html, cut, html_table, tag
from tallystick_html.representations import duration, moment
from tallystick_html.words import DECISIONS, REASONS

_MOST_TEXT = 4_000
"""Characters of one text that the page shows; its bundle has the rest."""
_MOST_MESSAGES = 40
"""Messages of one request: those before them were shown where they were new."""
_MADE_BY = "tallystick "
_STYLE = """
:root { color-scheme: light dark; --ink: #1d1e20; --paper: #fcfcfb; --dim: #62656b; --line: #dfdfda;
  --sunk: #f3f3f1; --in: #3b5bdb; --out: #c9c9c3; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e3; --paper: #15161a; --dim: #a0a4ad;
  --line: #2d3037; --sunk: #212329; --in: #6f8cff; --out: #474b55; --bad: #ff9d94; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 5rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h2 small, .dim, caption, th { color: var(--dim); font-weight: normal; }
a { color: inherit; }
code, pre { font: 12.5px/1.5 ui-monospace, monospace; }
code { overflow-wrap: anywhere; }
pre { margin: .25rem 0 .75rem; padding: .6rem .8rem; background: var(--sunk); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.25rem; margin: 1rem 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; font-size: 13.5px; }
caption { text-align: left; padding-bottom: .25rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
td:last-child, th:last-child { text-align: right; padding-right: 0;
  font-variant-numeric: tabular-nums; }
summary { cursor: pointer; color: var(--dim); margin: .5rem 0; }
.failed { color: var(--bad); }
@media print { details > * { display: block; } }
"""


def receipt_page(content: bytes) -> bytes:
    """Return the bundle of a run as a page in UTF-8. Raises InvalidInput for anything but a bundle.

    It shows the run, each step with the context that it was given and why, what was said, what is
    new at each step, and the digests. Long texts are cut; the bundle in it has all. Nothing in the
    page runs or loads anything.
    """
    return _page(bundle_in(content))


def says_its_bundle(page: bytes) -> bool | None:
    """Return True if a page says what its bundle says, byte for byte; None for a file that is no
    page, or one that another release made, which cannot be made again here.
    """
    content = bundle_in(page)
    if content == page or f'content="{_maker()}"'.encode() not in page:
        return None
    return _page(content) == page


def _maker() -> str:
    return _MADE_BY + version("tallystick")


def _page(content: bytes) -> bytes:
    stored = read_bundle(content)
    run = stored.run
    title = f"{run.agent_name}: {cut(run.goal, 90)}" if run.goal else run.agent_name
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=_maker()),
        tag("title", title),
        Html(f"<style>{_STYLE}</style>"),
    )
    body = tag(
        "body",
        tag("h1", title),
        _run_facts(stored),
        _proof(stored, content),
        *_steps(stored),
    )
    return ("<!doctype html>\n" + tag("html", head, body, lang="en") + "\n").encode()


def _run_facts(stored: BundledRun) -> Html:
    run = stored.run
    facts = {
        "agent": run.agent_name,
        "goal": run.goal,
        "visible to": run.scope,
        "started": moment(run.started_at),
        "took": duration(run.started_at, run.ended_at),
        "status": run.status,
        "steps": stored.step_count,
        "could not be recorded": run.gaps or None,
        "run": run.id,
    }
    return _list(facts)


def _proof(stored: BundledRun, content: bytes) -> Html:
    foil = stored.foil
    return tag(
        "section",
        tag(
            "p",
            "This page holds the record that it was made of. ",
            tag("code", "tally verify FILE"),
            " checks every byte of it, and that the page says what it says; the half that the "
            "sender kept has to be the same as this one:",
        ),
        tag("pre", f"{foil.count}:{foil.head}"),
        tag(
            "p",
            tag(
                "a",
                "The record as a file",
                href=bundle_link(content),
                download=f"{stored.run.id}.receipt",
            ),
            Html(' <span class="dim">(zip)</span>'),
        ),
    )


def _steps(stored: BundledRun) -> Iterator[Html]:
    shown: list[Message] = []
    for bundled in stored.steps():
        step = bundled.step
        name = step.name or step.step_kind.replace("_", " ")
        took = duration(step.started_at, step.ended_at)
        kind = step.step_kind.replace("_", " ")
        status = None if step.status == "completed" else step.status
        yield tag(
            "h2",
            f"{step.step_index + 1}. {name} ",
            tag("small", " · ".join(filter(None, (kind if name != kind else "", took)))),
            None if status is None else tag("small", f" · {status}", class_="failed"),
            id=step.id,
        )
        for entry in bundled.entries:
            if entry.kind == "request" and request_messages(entry.payload):
                messages = request_messages(entry.payload)
                new = [message for message in messages if message not in shown]
                yield from _request(new, len(messages) - len(new))
                shown = messages
            else:
                yield from _entry(entry)
        yield _digests(bundled)


def _entry(entry: StepEntry) -> Iterator[Html]:
    kind, payload = entry.kind, entry.payload
    fields: dict[str, Any] = payload if isinstance(payload, dict) else {}
    if kind == "compile_request":
        return
    if kind == "compiled":
        yield _context(entry)
    elif payload is None:
        state = "was erased" if entry.payload_state == "erased" else "is not kept"
        yield tag("p", f"{kind.replace('_', ' ')}: its text {state}", class_="dim")
    elif kind == "response":
        for message in answer_messages(payload):
            yield from _message(message)
    elif kind == "tool_call":
        yield _title_text("called with", _text(fields.get("arguments", payload)))
    elif kind == "tool_result":
        yield _title_text("gave back", _text(tool_result(payload)))
    elif kind == "error":
        yield _title_text("failed", _text(fields.get("message", payload)))
    elif kind == "memory_read" and isinstance(fields.get("hits"), list):
        hits = [hit for hit in fields["hits"] if isinstance(hit, dict)]
        caption = f"recalled for: {fields.get('query')}"
        if hits:
            rows = [(hit.get("id"), hit.get("score")) for hit in hits]
            yield html_table(caption, ("memory", "score"), rows)
        else:
            yield tag("p", f"{caption} (nothing)", class_="dim")
    else:
        yield _fold_details(kind.replace("_", " "), [tag("pre", _text(payload))])
    if entry.redactions:
        redacted = ", ".join(f"{count} {kind}" for kind, count in entry.redactions.items())
        yield tag("p", f"redacted: {redacted}", class_="dim")


def _context(entry: StepEntry) -> Html:
    """Return what was compiled: every candidate, in or out, and why."""
    decisions: list[tuple[object, ...]]
    coverage: Any = entry.summary.get("coverage")
    caption = f"{COVERAGE_TITLES.get(coverage, COVERAGE_TITLES[None])}, and why"
    try:
        compiled = CompiledContext.load(entry.payload)
        used, budget = (compiled.token_allocation.get(name, 0) for name in ("used", "budget"))
        caption += f" ({used} of {budget} tokens)"
        decisions = [
            (each.decision, each.item_id, _why(each.reason_code), each.final_tokens)
            for each in compiled.decisions
        ]
    except InvalidRecord:
        # Not kept, or of a release whose contexts have another form: the summary has the rest.
        listed = entry.summary.get("decisions")
        decisions = [
            (item[1], item[0], _why(str(item[2])), item[3])
            for item in (listed if isinstance(listed, list) else [])
            if isinstance(item, list) and len(item) >= 4
        ]
    included = [row for row in decisions if row[0] != "exclude"]
    left = [row[1:3] for row in decisions if row[0] == "exclude"]
    shown = [(*row[1:3], DECISIONS.get(str(row[0]), row[0]), row[3]) for row in included]
    header = ("candidate", "why", "", "tokens")
    table = html_table(caption, header, shown)
    if not left:
        return table
    folded = _fold_details(f"{len(left)} left out", [html_table("", ("candidate", "why"), left)])
    return Html(table + folded)


def _why(code: str) -> str:
    return REASONS.get(code, code.replace("_", " "))


def _request(new: list[Message], before: int) -> Iterator[Html]:
    parts = [part for message in new[-_MOST_MESSAGES:] for part in _message(message)]
    earlier = f", after {before} that stand above" if before else ""
    count = f"{len(new)} new message{'' if len(new) == 1 else 's'} to the model{earlier}"
    yield _fold_details(count, parts)


def _message(message: Message) -> Iterator[Html]:
    for part in message.parts:
        yield _title_text(f"{message.role}{_verb(part)}", _part_text(part))


def _verb(part: Part) -> str:
    match part:
        case ToolCallPart(_, name, _):
            return f" calls {name}"
        case ToolResultPart():
            return " answers"
        case ReasoningPart():
            return " thinks"
        case OtherPart(kind, _):
            return f", {kind}"
        case _:
            return ""


def _part_text(part: Part) -> str:
    match part:
        case TextPart(text) | ReasoningPart(text):
            return _cut(text)
        case ToolCallPart(_, _, value) | ToolResultPart(_, value) | OtherPart(_, value):
            return _text(value)


def _digests(bundled: BundledStep) -> Html:
    receipt = bundled.receipt
    if receipt is None:
        return tag("p", "no receipt: the step had not ended", class_="dim")
    return tag(
        "p",
        f"receipt {receipt.position}: ",
        tag("code", receipt.digest),
        tag("br"),
        "after: ",
        tag("code", receipt.previous),
        class_="dim",
    )


def _list(facts: Mapping[str, object]) -> Html:
    pairs = [
        child
        for name, value in facts.items()
        if value not in (None, "")
        for child in (tag("dt", name), tag("dd", value))
    ]
    return tag("dl", *pairs)


def _title_text(title: str, text: str) -> Html:
    return Html(tag("div", title, class_="dim") + tag("pre", text))


def _fold_details(title: str, inside: Iterable[Html]) -> Html:
    return tag("details", tag("summary", title), *inside)


def _text(value: Json) -> str:
    return _cut(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    )


def _cut(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT]}\n… and {len(text) - _MOST_TEXT:,} more characters in the record"
