"""The guard: structural checks of one learned fact, the same for a model and for a calling agent.

They look at where the words stand and never at what they mean: no word of any language is known
here. What a check finds is held for a person and shown; what the learner says of the mode may hold
a fact, and never applies one.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tallystick.ranking import analyze, query_terms
from tallystick.records import ExtractedFact, ProposalReason

MOST_CHANGES = 12
"""Changes of known facts that one answer makes at most: the others are held."""
LEAST_SURE = 50
"""Percent that a learner is sure of a fact at least."""
_HEADER = re.compile(r"^[^\W\d][\w-]*(?: [\w-]+)?: *\S")
_ADDRESS = re.compile(r"\S@\S|\d{1,2}:\d\d")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_RULE = re.compile(r"^\s*([^\w\s])\1{4,}")
_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_PAIRS = {**dict(zip("“«»‹›「『", "”»«›‹」』", strict=True)), "„": "“”", "‚": "‘’"}
_SHORT = 400
"""Characters within which a quotation between single marks ends: else they were apostrophes."""
_NOUNS = 0.15
"""The share of capitals from which on a writer begins nouns with one too."""
_YEAR_REACH = 24
"""Characters beside a year in which a number is a part of its date."""


@dataclass(frozen=True)
class Evidence:
    """What a fact is held against."""

    text: str
    """The text that it was drawn from."""
    shown: Sequence[str] = ()
    """The texts that the learner saw beside it: the turns before, known facts, the author."""
    year: int | None = None
    """The year in which it was said."""
    is_best_target: bool = True
    """True if its target is the memory that recall finds first by the fact and its text."""


def reason_to_hold(fact: ExtractedFact, evidence: Evidence) -> ProposalReason | None:
    """Return what speaks against applying a fact by itself, or None."""
    place = find_span(evidence.text, fact.span)
    if place is None:
        return "span_missing"
    if is_set_off(evidence.text, *place) or is_quoted(fact.content, evidence.text):
        return "quoted"
    if is_asked(evidence.text, *place):
        return "question"
    if fact.mode != "stated":
        return "not_stated"
    if fact.confidence < LEAST_SURE:
        return "not_sure"
    if not is_founded(fact.content, evidence):
        return "unfounded"
    return None if evidence.is_best_target else "other_target"


def find_span(text: str, span: str) -> tuple[int, int] | None:
    """Return the characters of `text` that say `span`, whatever its white space and case."""
    words = r"\s+".join(map(re.escape, span.split()))
    match = re.search(words, text, re.IGNORECASE) if words else None
    return None if match is None else match.span()


def is_set_off(text: str, start: int, end: int) -> bool:
    """Return True if a part of the span is quoted or pasted: between quotation marks, in a fence,
    behind `>`, in a block of its own, or below the header of a mail.
    """
    set_off = (*_pasted_lines(text), *_quotations(text))
    return any(first < end and start < last for first, last in set_off)


def is_quoted(content: str, text: str) -> bool:
    """Return True if a fact shares more words with what is set off in its text than with the rest,
    wherever its span stands.
    """
    mask = bytearray(len(text))
    for first, last in (*_pasted_lines(text), *_quotations(text)):
        mask[first:last] = b"\1" * (last - first)
    of_fact = set(query_terms(content))
    own, quoted = (
        "".join(each if hidden == side else " " for each, hidden in zip(text, mask, strict=True))
        for side in (0, 1)
    )
    return len(of_fact.intersection(analyze(quoted))) > len(of_fact.intersection(analyze(own)))


def _pasted_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines that are somebody else's by their form."""
    lines, fence, at = text.splitlines(keepends=True), "", 0
    # A line that ends in a colon leads a block: behind it, and in it.
    follows = inside = False
    for number, line in enumerate(lines):
        span = (at, at := at + len(line))
        if (opened := _FENCE.match(line)) is not None:
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1][:3]
            yield span
        elif not line.strip():
            inside = False
        elif _begins_mail(lines[number : number + 2]) or _RULE.match(line):
            yield span[0], len(text)
            return
        else:
            inside = inside or follows
            is_indented = number > 0 and line.startswith(("    ", "\t"))
            is_marked = is_indented or line.lstrip().startswith((">", "|"))
            if fence or inside or is_marked or _is_machine_made(lines, number):
                yield span
            follows = line.rstrip().endswith((":", "："))


def _begins_mail(pair: Sequence[str]) -> bool:
    """Return True for two lines of a name, a colon and a value, one with an address or a time."""
    are_fields = len(pair) == 2 and all(_HEADER.match(line) for line in pair)
    return are_fields and any(_ADDRESS.search(line) for line in pair)


def _is_machine_made(lines: Sequence[str], number: int) -> bool:
    """Return True if a line begins as the one before or behind it does, with a number in it: rows
    of a log or of a table.
    """
    shape = _shape_of(lines[number])
    beside = (*lines[max(0, number - 1) : number], *lines[number + 1 : number + 2])
    return "0" in shape and len(shape) >= 4 and any(_shape_of(line) == shape for line in beside)


def _shape_of(line: str) -> str:
    """Return the form of the first word of a line: a digit for digits, a letter for letters."""
    first = line.split(maxsplit=1)[0] if line.strip() else ""
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "0", first))


def _quotations(text: str) -> Iterator[tuple[int, int]]:
    """Yield what stands between quotation marks of any script."""
    at = 0
    while at < len(text):
        mark = text[at]
        closing = _closing_of(text, at)
        end = -1 if closing is None else _find_closing(text, at + 1, mark, closing)
        if end < 0:
            at += 1
            continue
        yield at, end + 1
        at = end + 1


def _closing_of(text: str, at: int) -> str | None:
    """Return the marks that close the quotation which a character opens, or None."""
    mark = text[at]
    if mark in _PAIRS or mark.isalnum():
        return _PAIRS.get(mark)
    before = text[at - 1] if at else " "
    if mark in "'‘`" and not before.isalnum():
        return {"‘": "’", "`": "`"}.get(mark, "'")
    is_quote = mark == '"' or (mark not in "'’" and "QUOTATION MARK" in unicodedata.name(mark, ""))
    return mark if is_quote and mark not in "”’" else None


def _find_closing(text: str, at: int, mark: str, closing: str) -> int:
    """Return the place of the mark that closes a quotation, -1 where none does."""
    is_single = mark in "'‘`"
    for place in range(at, min(len(text), at + _SHORT) if is_single else len(text)):
        if text[place] not in closing:
            continue
        behind = text[place + 1] if place + 1 < len(text) else " "
        # An apostrophe stands within a word.
        if text[place] not in "'’" or not behind.isalnum():
            return place if place > at else -1
    # A quotation that nobody closed goes on to the end; an apostrophe opened none.
    return len(text) - 1 if not is_single and at < len(text) else -1


def is_asked(text: str, start: int, end: int) -> bool:
    """Return True if a span ends in a question mark of any script, or the words behind it do before
    another mark comes.
    """
    words = text[start:end].rstrip()
    if words and not words[-1].isalnum():
        return _is_question_mark(words[-1])
    for mark in text[end:]:
        if not (mark.isalnum() or mark in " '’-"):
            return _is_question_mark(mark)
    return False


def _is_question_mark(mark: str) -> bool:
    name = unicodedata.name(mark, "")
    return "QUESTION MARK" in name and "INVERTED" not in name


def is_founded(content: str, evidence: Evidence) -> bool:
    """Return True if each name and each number of a fact, but for the parts of a date, stands in
    what the learner saw.
    """
    shown = " ".join((evidence.text, *evidence.shown))
    tokens = _TOKEN.findall(shown)
    numbers, stems = {*tokens}, sorted({each.casefold() for each in tokens})
    marks_names = _share_of_capitals(shown) < _NOUNS
    dated = _dated_spans(content, evidence.year)
    for match in _TOKEN.finditer(content):
        word, start = match[0], match.start()
        is_number = word.isdecimal()
        is_name = marks_names and word[0].isupper() and not _begins_sentence(content, start)
        is_known = word in numbers if is_number else _has_stem(stems, word)
        is_dated = any(low <= start < high for low, high in dated)
        if (is_number or is_name) and not (is_known or is_dated):
            return False
    return True


def _share_of_capitals(text: str) -> float:
    """Return the share of words within sentences that begin with a capital."""
    words = [match for match in _TOKEN.finditer(text) if match[0].isalpha()]
    inner = [match[0] for match in words if not _begins_sentence(text, match.start())]
    return sum(word[0].isupper() for word in inner) / (len(inner) or 1)


def _begins_sentence(content: str, start: int) -> bool:
    before = content[max(0, start - 8) : start].rstrip(" \"'“„«(¿¡")
    return not before or before[-1] in ".!?。！？…:：\n"


def _has_stem(stems: Sequence[str], word: str) -> bool:
    """Return True if a word of the sorted ones begins as this one does, but for its ending."""
    stem = word.casefold()[: max(3, len(word) - 2)]
    at = bisect_left(stems, stem)
    return at < len(stems) and stems[at].startswith(stem)


def _dated_spans(content: str, year: int | None) -> list[tuple[int, int]]:
    """Return the parts of a fact beside a year near the one in which it was said: relative dates
    were resolved there.
    """
    years = () if year is None else (year - 1, year, year + 1)
    return [
        (match.start() - _YEAR_REACH, match.end() + _YEAR_REACH)
        for each in years
        for match in re.finditer(rf"(?<!\d){each}(?!\d)", content)
    ]
