"""Passages: a memory as a model is shown it: with its caption, by the part that answers, once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from tallystick.memory.fields import text_for_model
from tallystick.policy.redaction import Redactor
from tallystick.ranking import analyze, slices
from tallystick.records import Hit, Memory

_ALIKE = 0.85
"""The share of their words that two texts have in common which say nearly the same."""
_LEAST = 5
"""The different words below which a text is folded into no other: "yes" twice is two answers."""
_WRITTEN = ("content", "subject", "speaker", "category", "attributes")
"""The fields of a memory that somebody wrote, beside its tags."""
_READ = 2_000
"""Characters of a text that are compared."""


def shown_text(memory: Memory) -> str:
    """Return the text of a memory, and the caption of the image that came with it."""
    caption = memory.attributes.get("caption")
    if not isinstance(caption, str) or not caption.strip() or caption in memory.content:
        return memory.content
    return f"{memory.content} [image: {caption.strip()}]"


def document_place(memory: Memory) -> str | None:
    """Return the title of a document and the headings that a passage of it stands under; None for
    what is no passage of a titled document.
    """
    is_passage = memory.kind == "document" and "title" in memory.attributes
    return memory.subject if is_passage else None


def part_of(text: str, passage: tuple[int, int]) -> str:
    """Return which slice of a text a passage is, such as `3 of 9`."""
    pieces = slices(text)
    end = 0
    for place, piece in enumerate(pieces, start=1):
        end += len(piece)
        if passage[0] < end:
            return f"{place} of {len(pieces)}"
    return f"{len(pieces)} of {len(pieces)}"


def passage_text(hit: Hit) -> tuple[str, str | None]:
    """Return what a model is shown of a hit: the passage of a long text that answers, with its
    place, or all of it with its caption.
    """
    content = hit.memory.content
    if hit.passage is None:
        return shown_text(hit.memory), None
    start, end = hit.passage
    return content[start:end], part_of(content, hit.passage)


def memory_for_model(redactor: Redactor, memory: Memory) -> Memory:
    """Return a memory without secrets: what a model is shown of it."""
    fields = {name: value for name in _WRITTEN if (value := getattr(memory, name))}
    fields["tags"] = list(memory.tags)
    # One look at all of them first: a compile has a hundred candidates.
    body = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if not redactor.may_hold(body):
        return memory
    redacted, counts = redactor.redact_json(fields)
    if not counts:
        return memory
    assert isinstance(redacted, dict)
    tags = cast("list[str]", redacted["tags"])
    return memory.model_copy(update={**redacted, "tags": tuple(tags)})


def candidate_for_model(redactor: Redactor, memory: Memory) -> Memory:
    """Return a memory as a compile chooses it: without secrets, its text as a model is shown it."""
    memory = memory_for_model(redactor, memory)
    text = text_for_model(memory.kind, shown_text(memory))
    return memory if text == memory.content else memory.model_copy(update={"content": text})


def hit_for_model(redactor: Redactor, hit: Hit) -> Hit:
    """Return a hit without secrets: what a model is shown of it. Its passage is found anew."""
    memory = memory_for_model(redactor, hit.memory)
    if memory is hit.memory:
        return hit
    passage = hit.passage
    if passage is not None:
        content = hit.memory.content
        # No rule knows half a secret: the passage begins before one, and ends behind one.
        start, end = passage
        for finding in redactor.find(content):
            if finding.start < start < finding.end:
                start = finding.start
            if finding.start < end < finding.end:
                end = finding.end
        lengths = [len(redactor.redact_text(content[:place]).text) for place in (start, end)]
        passage = lengths[0], min(lengths[1], len(memory.content))
    return hit.model_copy(update={"memory": memory, "passage": passage})


class Content(NamedTuple):
    """What a text says, to compare it with others."""

    words: frozenset[str]
    numbers: frozenset[str]
    """Its words with digits: texts that differ in one say different things."""


def content_of(text: str) -> Content:
    """Return the words of the beginning of a text."""
    words = frozenset(analyze(text[:_READ]))
    return Content(words, frozenset(word for word in words if any(map(str.isdigit, word))))


def says_the_same(one: Content, other: Content) -> bool:
    """Return True if two texts have nearly all of their words in common, and all of their
    numbers.
    """
    if min(len(one.words), len(other.words)) < _LEAST or one.numbers != other.numbers:
        return False
    shared = len(one.words & other.words)
    return shared >= _ALIKE * len(one.words | other.words)


def unfold(hits: Iterable[Hit]) -> list[tuple[Hit, list[str]]]:
    """Return the hits that are shown, in their order, each with the ids of those that say nearly
    the same as what is shown of it.
    """
    shown: list[tuple[Hit, list[str]]] = []
    contents: list[Content] = []
    for hit in hits:
        content = content_of(passage_text(hit)[0])
        for (other, folded), known in zip(shown, contents, strict=True):
            if other.memory.id in hit.contradicted_by:
                continue
            if other.history == hit.history and says_the_same(content, known):
                folded.append(hit.memory.id)
                break
        else:
            shown.append((hit, []))
            contents.append(content)
    return shown


def as_ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: 1-3, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
