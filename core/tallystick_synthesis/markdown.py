"""Markdown: how a quotation is written so that reading it gives its bytes back, and how a draft is
read into sentences with their citations.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape as escape_html
from typing import Any, NamedTuple

from tallystick.compiler.shorten import whole_sentences
from tallystick.errors import MissingExtra
from tallystick.ranking import analyze, query_terms
from tallystick.records.synthesis import DraftSentence, SectionItem

_SPECIAL = re.compile(r"([\\`*_\[\]<>&~|#])")
_HANDLES = re.compile(r"(?<!\\)((?:\[\d{1,4}\][ ,]*)+)")
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"“(.*)”", re.DOTALL)
_ENDS = (".", "!", "?", "。", "！", "？", "…")
_ENDING = " .!?。！？…;:,"
_LONGEST_SPAN, _SHORTEST_SPAN = 700, 12
_WORD = re.compile(r"\w{2,}")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>body{{font:1rem/1.5 system-ui;max-width:44rem;margin:2rem auto;padding:0 1rem}}</style>
</head><body>
{body}</body></html>
"""


class _Unit(NamedTuple):
    text: str
    cites: tuple[int, ...]


def escape(text: str) -> str:
    """Return a text in Markdown that reads as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def in_line(text: str) -> str:
    """Return a text in Markdown as one line, in which nothing begins a paragraph of its own."""
    return escape(" ".join(text.split()))


def as_quote(item: SectionItem, span: str, *beside: SectionItem) -> str:
    """Return the quotation of a span with the handles of its item and of others."""
    handles = "".join(f"[{each.handle}]" for each in (item, *beside))
    return f"“{escape(span)}” {handles}"


def spans_of(item: SectionItem, most: int, query: str = "") -> list[str]:
    """Return the sentences of an item that answer best, at most `most`, in their order: each of
    one line. Of a longer text only whole sentences are quoted: no headings, tables or code.
    """
    lines = _prose_lines(item.text)
    is_short = len(lines) == 1
    spans = []
    for line in lines:
        for start, end in whole_sentences(line):
            span = line[start:end].strip().strip("\x85")
            is_whole = is_short or span.rstrip("*_”").endswith(_ENDS)
            if is_whole and _is_prose(span):
                spans.append(span)
    spans = list(dict.fromkeys(spans))
    words = set(query_terms(query)) if query else set()
    ranked = sorted(
        range(len(spans)),
        key=lambda at: (-len(words.intersection(analyze(spans[at]))), at),
    )
    return [spans[at] for at in sorted(ranked[:most])]


def _prose_lines(text: str) -> list[str]:
    """Return the lines of a text but for those of code: between fences, or indented."""
    lines, is_fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_fenced = not is_fenced
        elif line.strip() and not is_fenced and not line.startswith(("    ", "\t")):
            lines.append(line.strip().removeprefix("- ").removeprefix("* "))
    return lines


def _is_prose(span: str) -> bool:
    """Return True unless a line is a heading, a row of a table, or mostly signs and links."""
    letters = sum(each.isalpha() or each.isspace() for each in span)
    is_text = bool(span) and span[0] not in "#|>`-+=$" and 5 * letters >= 4 * len(span)
    is_sized = _SHORTEST_SPAN <= len(span) <= _LONGEST_SPAN and len(_WORD.findall(span)) > 2
    return is_text and is_sized and "](" not in span and "\0" not in span


def read_draft(markdown: str, *, by_model: bool) -> tuple[DraftSentence, ...]:
    """Return the sentences of the Markdown of one section, in their order. Headings are of the
    plan, not of a draft: one here is a sentence that cites nothing.
    """
    tokens = _reader().parse(markdown)
    sentences: list[DraftSentence] = []
    for token in tokens:
        if token.type in ("fence", "code_block", "html_block") and token.content.strip():
            sentences.append(DraftSentence(text=token.content.strip(), by_model=by_model))
        elif token.type == "inline":
            for unit in _units(token.content):
                sentences += _sentences(unit, by_model=by_model)
    return tuple(sentences)


def _units(raw: str) -> list[_Unit]:
    """Return what stands before each group of handles, and the rest without any."""
    units, at = [], 0
    for match in _HANDLES.finditer(raw):
        cites = tuple(dict.fromkeys(int(each) for each in _NUMBER.findall(match[1])))
        units.append(_Unit(raw[at : match.start()], cites))
        at = match.end()
    units.append(_Unit(raw[at:], ()))
    return [each for each in units if each.text.strip(_ENDING)]


def _sentences(unit: _Unit, *, by_model: bool) -> list[DraftSentence]:
    # What ends the sentence before stands behind its handles.
    text = _plain(unit.text).strip().lstrip(".,;").strip()
    if not text:
        return []
    quoted = _QUOTED.search(text)
    is_whole = quoted is not None and text[quoted.end() :].strip(_ENDING) == ""
    if quoted is not None and is_whole and (not by_model or text.startswith("“")):
        return [DraftSentence(text=text, cites=unit.cites, span=quoted[1], by_model=by_model)]
    parts = [text[start:end].strip() for start, end in whole_sentences(text)]
    *first, last = [part for part in parts if part] or [text]
    alone = [DraftSentence(text=part, by_model=by_model) for part in first]
    return [*alone, DraftSentence(text=last, cites=unit.cites, by_model=by_model)]


def _plain(raw: str) -> str:
    """Return the text of inline Markdown."""
    [token] = _reader().parseInline(raw) or [None]
    if token is None:
        return ""
    return "".join(_text_of(child) for child in token.children or ())


def _text_of(token: Any) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return str(token.content)


def html_of(markdown: str) -> str:
    """Return the HTML of a document; HTML inside of it is text, and no link leads away."""
    return str(_reader().render(markdown))


def page_of(title: str, markdown: str) -> str:
    """Return a document as one page that loads nothing."""
    return _PAGE.format(title=escape_html(title), body=html_of(markdown))


@cache
def _reader() -> Any:
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError as error:
        raise MissingExtra("markdown-it-py", "synthesis") from error
    return MarkdownIt("commonmark", {"html": False}).disable(
        ["html_block", "html_inline", "image", "link", "autolink", "reference"]
    )
