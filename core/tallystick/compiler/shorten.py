"""Shorten: texts made to fit a number of tokens without a model, by their structure or by their
sentences.

Structure: JSON loses white space, then the tails of its lists and strings; logs lose lines like the
one before; tracebacks and logs keep head and tail; diffs lose their context lines, code its bodies.
Everything else keeps the sentences that share most with the request, of a message that shows code
those around it first. Lines that were wrapped are joined first, so that a sentence is kept whole or
left, and its heading stays with it. The sentences kept stay in their order; what is left out leaves
a mark.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise, takewhile
from typing import Any, Literal, NamedTuple

from tallystick.ranking import FENCES, analyze, code_spans, prose_parts, sentence_spans

_DEFINES = re.compile(
    r"\s*(?:@\w|#\[|(?:from\s+\S+\s+)?import\s|#include\b|package\s+\w|use\s+[\w:]+"
    r"|(?:(?:export|public|private|protected|internal|static|final|abstract|async|default|pub(?:\(\w+\))?|override"
    r"|inline|virtual|unsafe|extern|declare)\s+)*"
    r"(?:def|class|function|func|fn|interface|struct|enum|trait|impl|type|module|namespace|record|protocol|object)\s+\w)"
)
"""A line that says what there is: an import, a decorator or a definition, in the languages that
most write.
"""
_HUNK = re.compile(r"^@@ .* @@", re.MULTILINE)
_HEADER = ("diff --git", "--- ", "+++ ", "@@ ", "index ", "rename ", "new file", "deleted file")
_LEAST_DEFINITIONS = 3


def is_code(lines: Sequence[str]) -> bool:
    """Return True if lines are code: several define something, and not every tenth line is prose
    without any sign of code.
    """
    defining = sum(_DEFINES.match(line) is not None for line in lines)
    signs = sum(
        line.rstrip().endswith((":", "{", "}", ";", ")", ",", "(", "]"))
        for line in lines
        if line.strip()
    )
    written = sum(bool(line.strip()) for line in lines)
    return defining >= _LEAST_DEFINITIONS and signs * 3 >= written


def outlines(lines: Sequence[str], query: frozenset[str]) -> Callable[[int], str]:
    """Return a function of a number of lines: the lines that define something, and of the others
    that many which share most words with the query.

    What is left out leaves a mark with the number of its lines.
    """
    outline = {place for place, line in enumerate(lines) if _DEFINES.match(line)}
    others = [place for place, line in enumerate(lines) if place not in outline and line.strip()]

    @cache
    def rank_bodies() -> list[int]:
        return sorted(others, key=lambda place: -len(query.intersection(analyze(lines[place]))))

    def outline_with(bodies: int) -> str:
        return _with_gaps(lines, outline.union(rank_bodies()[:bodies]) if bodies else outline)

    return outline_with


def is_diff(content: str) -> bool:
    """Return True if a text is a unified diff: it has a hunk, and most of its lines are of one."""
    if _HUNK.search(content) is None:
        return False
    lines = [line for line in content.splitlines() if line.strip()]
    changed = sum(line.startswith(("+", "-")) for line in lines)
    return changed > 0 and 2 * sum(line.startswith((*_HEADER, *"+- ")) for line in lines) > len(
        lines
    )


def diff_forms(lines: Sequence[str]) -> Iterable[str]:
    """Yield the diff without its context lines, then with ever fewer changed lines of each hunk."""
    changed = [place for place, line in enumerate(lines) if line.startswith((*_HEADER, "+", "-"))]
    yield _with_gaps(lines, set(changed))
    for most in (20, 8, 3, 0):
        lines_in, in_hunk = set(), 0
        for place in changed:
            if lines[place].startswith(_HEADER):
                lines_in.add(place)
                in_hunk = 0
            elif in_hunk < most:
                lines_in.add(place)
                in_hunk += 1
        yield _with_gaps(lines, lines_in)


def _with_gaps(lines: Sequence[str], places: set[int]) -> str:
    parts: list[str] = []
    missing = 0
    for place, line in enumerate(lines):
        if place in places:
            if missing:
                parts.append(f"[…{missing} lines]")
            missing = 0
            parts.append(line)
        elif line.strip():
            missing += 1
    if missing:
        parts.append(f"[…{missing} lines]")
    return "\n".join(parts)


GAP = " […] "
"""The mark of an omission."""

_STEP = 32
"""Characters by which a text is cut that has no sentences."""
_JSON_STEPS = ((40, 800), (12, 300), (4, 120), (1, 60))
"""Longest list and longest string, from gentle to harsh."""
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\s+')
_NUMBERS = re.compile(r"\b(?:0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+)\b|\d+")
_LOG_LINE = re.compile(
    r"^\s*(?:\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d:\d\d|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)"
)
_OWN_LINE = re.compile(r"\s*(?:#{1,6}\s|[-*+•]\s|\d+[.)]\s|[>|:@]|`{3}|~{3}|={3}|-{3})")
"""A line that begins something: a heading, an item, a quote, a row, a field, a rule."""
_CLOSED_LINE = re.compile(r"\s*(?:#{1,6}\s|\||>>>|={3}|-{3})")
"""A line that goes on in no other."""
_WRAPPED = range(40, 141)
"""The widths, in characters, at which texts are wrapped by hand or by editors."""
_UNDERLINE = re.compile(r"={3,}|-{3,}|~{3,}")
_DOTTED = re.compile(r"(?:\w+\.)+\w+")
"""An abbreviation, or a name, with a period in it."""
_ENDS = ".!?。！？"
_TRACEBACK = re.compile(
    r"^[ \t]*(?:Traceback \(most recent call last\):|Caused by: |at [\w$.<>]+\()", re.MULTILINE
)


class ShortForm(NamedTuple):
    """A shorter form of a content, and the method that made it."""

    reason: Literal["compressed_structural", "compressed_extractive"]
    content: str


def shorten(
    content: str, *, target: int, query: Sequence[str], count: Callable[[str], int]
) -> ShortForm | None:
    """Return `content` in at most `target` tokens as `count` counts them; None if no form that
    says something fits.

    `query` are the analysed words of the request. Pure, and the same on every machine.
    """
    structural = _by_structure(content, target, frozenset(query), count)
    if structural is not None:
        return ShortForm("compressed_structural", structural)
    extract = _by_sentences(content, target, frozenset(query), count)
    return None if extract is None else ShortForm("compressed_extractive", extract)


def cut(
    content: str, *, target: int, query: Sequence[str], count: Callable[[str], int]
) -> ShortForm:
    """Return `content` in at most `target` tokens: as `shorten` does, else its beginning."""
    form = shorten(content, target=target, query=query, count=count)
    if form is not None:
        return form

    def head(steps: int) -> str:
        return f"{content[: steps * _STEP].rstrip()}{GAP.rstrip()}"

    steps = (len(content) - 1) // _STEP
    return ShortForm(
        "compressed_extractive", largest_that_fits(head, steps, 0, target, count) or ""
    )


def omit_code(content: str) -> str:
    """Return a text with a mark in place of each piece of code between fences; as it is where it
    says nothing else.
    """
    parts = prose_parts(content)
    return content if len(parts) == 1 else GAP.join(part.strip() for part in parts).strip()


def _by_structure(
    content: str, target: int, query: frozenset[str], count: Callable[[str], int]
) -> str | None:
    if content.lstrip()[:1] in ("{", "["):
        return _first_that_fits(_json_forms(content), target, count)
    lines = content.splitlines()
    if len(lines) < 4 or len(prose_parts(content)) > 1:
        return None
    if _TRACEBACK.search(content):
        return _head_and_tail(lines, target, count)
    if is_diff(content):
        return _first_that_fits(diff_forms(lines), target, count)
    if is_code(lines):
        return largest_that_fits(outlines(lines, query), len(lines) - 1, 0, target, count)
    folded = _fold(lines)
    is_log = sum(1 for line in lines if _LOG_LINE.match(line)) * 2 >= len(lines)
    if not is_log and len(folded) * 3 > len(lines) * 2:
        return None
    return _first_that_fits(("\n".join(folded),), target, count) or _head_and_tail(
        folded, target, count
    )


def _first_that_fits(forms: Iterable[str], target: int, count: Callable[[str], int]) -> str | None:
    return next((form for form in forms if count(form) <= target), None)


def _json_forms(content: str) -> Iterable[str]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return
    # Cut from the text, so that numbers stay as they were written.
    yield _JSON_TOKEN.sub(lambda match: match.group() if match.group()[0] == '"' else "", content)
    for longest_list, longest_text in _JSON_STEPS:
        try:
            form = json.dumps(
                _cut_value(value, longest_list, longest_text),
                ensure_ascii=False,
                separators=(",", ":"),
            )
        except RecursionError:
            return
        yield form


def _cut_value(value: Any, longest_list: int, longest_text: int) -> Any:
    if isinstance(value, str):
        return (
            value
            if len(value) <= longest_text
            else f"{value[:longest_text]} […{len(value) - longest_text} more]"
        )
    if isinstance(value, list):
        shortened = [
            _cut_value(inner, longest_list, longest_text) for inner in value[:longest_list]
        ]
        return (
            shortened
            if len(value) <= longest_list
            else [*shortened, f"[…{len(value) - longest_list} more]"]
        )
    if isinstance(value, dict):
        return {key: _cut_value(inner, longest_list, longest_text) for key, inner in value.items()}
    return value


def _fold(lines: Sequence[str]) -> list[str]:
    """Return runs of lines that differ only in numbers, as their first line and a count."""
    folded: list[str] = []
    shape, like = None, 0
    for line in lines:
        here = _NUMBERS.sub("#", line)
        if here == shape:
            like += 1
            continue
        if like:
            folded.append(f"[…{like} more like this]")
        folded.append(line)
        shape, like = here, 0
    if like:
        folded.append(f"[…{like} more like this]")
    return folded


def _head_and_tail(lines: Sequence[str], target: int, count: Callable[[str], int]) -> str | None:
    """A third of the room for the first lines, the rest for the last, where errors are."""

    def form(keep: int) -> str:
        head = max(1, keep // 3)
        return "\n".join(
            [*lines[:head], f"[…{len(lines) - keep} lines]", *lines[len(lines) - (keep - head) :]]
        )

    return largest_that_fits(form, len(lines) - 1, 2, target, count)


def _by_sentences(
    content: str, target: int, query: frozenset[str], count: Callable[[str], int]
) -> str | None:
    text = unwrap(content)
    spans = whole_sentences(text)
    above = _headings(text, spans)
    code = set(_places_in(code_spans(text), spans))
    # A line above code alone is what is said beside it.
    headings = {heading for place, heading in above.items() if place not in code}
    ranked = [each for each in _sentences_by_worth(text, spans, query) if each not in headings]
    if len(spans) < 2 or not ranked:
        return None

    def form(keep: int) -> str:
        kept = set(ranked[:keep])
        kept.update(above[place] for place in ranked[:keep] if place in above)
        return _join_sentences(text, spans, sorted(kept))

    return largest_that_fits(form, min(len(ranked), len(spans) - 1), 1, target, count)


def unwrap(text: str) -> str:
    """Return a text whose lines that were broken at a width are joined again.

    A line was broken there if the first word of the next one had no room in the widest line of
    their paragraph, or goes on in small letters, and both are indented alike. Code between fences,
    items of lists, headings, rows of tables and quotes begin lines of their own.
    """
    lines = text.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))
    code = set(_places_in(code_spans(text), [(at, at) for at in starts]))
    joined: list[str] = []
    width, indents = 0, set[int]()
    for place, line in enumerate(lines):
        if not line.strip() or place in code:
            joined.append(line)
            width = 0
            continue
        before, indent = lines[place - 1].rstrip(), len(line) - len(line.lstrip())
        word = line.split(maxsplit=1)[0]
        goes_on = len(before) + 1 + len(word) > width or (
            (before[-1:].isalpha() or before[-1:] == ",")
            and word.isalpha()
            and word.islower()
            and 2 * len(before) > width
        )
        if is_new := not width:
            block = takewhile(str.strip, lines[place:])
            width = max(len(each.rstrip()) for each in block)
        # The second line of an item or of a paragraph may hang; those after it are as that one.
        is_alike = len(indents) < 2 or indent in indents
        if goes_on and is_alike and not is_new and width in _WRAPPED and not _OWN_LINE.match(line):
            joined[-1] = f"{joined[-1].rstrip()} {line.strip()}"
            indents = {indent, -1}
        else:
            joined.append(line)
            indents = {indent}
        if _CLOSED_LINE.match(line):
            width = 0
    return "\n".join(joined)


def whole_sentences(text: str) -> list[tuple[int, int]]:
    """Return the character ranges of sentences and lines, in their order.

    The period of an abbreviation, of the number of an item, and of what goes on in small letters in
    a text that has capitals, ends no sentence. The line below a heading belongs to it.
    """
    spans = sentence_spans(text)
    following = [text[start] for (_, after), (start, _) in pairwise(spans) if text[after] != "\n"]
    has_capitals = 2 * sum(map(str.isupper, following)) > sum(map(str.isalpha, following))
    whole: list[tuple[int, int]] = []
    for start, end in spans:
        if whole:
            first, last = whole[-1]
            goes_on = text[last:start].strip(" \t") == "" and _goes_on(
                text[first:last], text[start], has_capitals
            )
            if goes_on or _UNDERLINE.fullmatch(text[start:end].strip()):
                whole[-1] = (first, end)
                continue
        whole.append((start, end))
    return whole


def _goes_on(sentence: str, following: str, has_capitals: bool) -> bool:
    """Return True if what ends with a period is not the end of a sentence."""
    if not sentence.endswith("."):
        return False
    word = sentence.split()[-1].lstrip("([\"'")[:-1]
    is_number = word.isdecimal() and word == sentence.strip()[:-1]
    return (
        (has_capitals and following.islower())
        or is_number
        or (word.isalpha() and len(word) == 1)
        or bool(_DOTTED.fullmatch(word))
    )


def _headings(text: str, spans: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the place of the heading above each place that has one: the nearest line that is
    marked or underlined as one, else the first line, if that is no sentence.
    """
    above: dict[int, int] = {}
    heading = None
    for place, (start, end) in enumerate(spans):
        line = text[start:end].strip()
        is_alone = text[end : end + 1] == "\n" and not line.startswith(FENCES)
        is_first = place == 0 and is_alone and line[-1] not in _ENDS
        if is_first or line.startswith("#") or _UNDERLINE.fullmatch(line.rpartition("\n")[2]):
            heading = place
        elif heading is not None:
            above[place] = heading
    return above


def largest_that_fits(
    form: Callable[[int], str], most: int, least: int, target: int, count: Callable[[str], int]
) -> str | None:
    """Return the form with the most parts that fits; None where the one with the fewest does not.

    The number of parts is doubled until a form does not fit, then drawn in by what the forms on
    both sides weigh: few texts are counted, and none that is much longer than what fits.
    """
    if most < least:
        return None
    best = form(least)
    low, at_low = least, count(best)
    if at_low > target:
        return None
    high, at_high = most + 1, 0
    step, by_half = 1, False
    while high - low > 1:
        if not at_high:
            keep = min(low + step, most)
        elif by_half:
            keep = (low + high) // 2
        else:
            keep = low + (high - low) * (target - at_low) // (at_high - at_low)
            keep = min(max(keep, low + 1), high - 1)
        text = form(keep)
        tokens = count(text)
        if tokens <= target:
            best, low, at_low = text, keep, tokens
            step *= 2
        else:
            high, at_high = keep, tokens
        by_half = at_high > 0 and not by_half
    return best


def _sentences_by_worth(
    content: str, spans: Sequence[tuple[int, int]], query: frozenset[str]
) -> list[int]:
    """Return the places of the sentences: those that share most with the request first, earlier
    before later ones. Lines of code between fences come after what is said around them, but for
    those with a word of the request that is not said; of a traceback the last come first. The
    fences are in none of them.
    """
    code = set(_places_in(code_spans(content), spans))
    fences = {at for at in code if content[slice(*spans[at])].lstrip().startswith(FENCES)}
    words = [analyze(content[start:end]) if query else [] for start, end in spans]
    shared = [query.intersection(each) for each in words]
    told = frozenset[str]().union(*(each for at, each in enumerate(shared) if at not in code))
    is_backwards = bool(code) and _TRACEBACK.search(content) is not None

    def key(place: int) -> tuple[bool, int, int]:
        own = shared[place]
        # Long sentences share words by being long: what is shared counts by the square root of the
        # length.
        worth = len(own) * len(own) * 1000 // (len(words[place]) + 8)
        if place in code and own <= told:
            return True, 0, -place if is_backwards else place
        return False, -worth, place

    ranked = sorted(range(len(spans)), key=key)
    return [place for place in ranked if place not in fences] or ranked


def _places_in(
    ranges: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> Iterator[int]:
    """Yield the places of the spans that begin in one of the ranges; both are in order."""
    ends = [end for _, end in ranges]
    for place, (start, _) in enumerate(spans):
        at = bisect_right(ends, start)
        if at < len(ranges) and ranges[at][0] <= start:
            yield place


def _join_sentences(content: str, spans: Sequence[tuple[int, int]], places: Sequence[int]) -> str:
    text = ""
    before = -1
    for place in places:
        start, end = spans[place]
        if place != before + 1:
            text = text.rstrip() + GAP if text else GAP.lstrip()
            text += content[start:end].lstrip()
        else:
            text += content[spans[before][1] if text else start : end]
        before = place
    return text if before == len(spans) - 1 else text.rstrip() + GAP.rstrip()
