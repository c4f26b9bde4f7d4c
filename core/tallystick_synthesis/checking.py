"""Checking: every sentence against the items that it cites, by structure alone.

A quotation is compared byte for byte. Of other words it is asked where their numbers, names and
stems stand in what is cited; no word of any language is known here. Words that agree do not prove
that a sentence says the same (one that turns it into its opposite differs by one short word), so
that such a sentence is never settled but by a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tallystick.compiler.shorten import whole_sentences
from tallystick.errors import InvalidInput
from tallystick.records.canonical import json_bytes
from tallystick.records.synthesis import (
    Claim,
    ClaimReason,
    CollectedSection,
    DraftSection,
    DraftSentence,
    SectionItem,
    SynthesisRun,
    SynthesisVerification,
    Verdict,
)
from tallystick_synthesis.desk import Desk, conflict, digest_of, digest_of_draft
from tallystick_synthesis.drafting import quoted_sentences
from tallystick_synthesis.reading import is_aged

_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+")
_PLACE = re.compile(r"(\d{1,4})\.(\d{1,4})")
_SHORT = 3
"""Letters up to which a word carries grammar rather than what is said, in most languages."""
_STRAY_LETTERS = 8
"""Letters of words without a counterpart from which on they say something of their own."""


class _Checked(NamedTuple):
    unsupported: Claim | None
    unsettled: Claim | None


class _Words(NamedTuple):
    """The words of some texts, for a look-up."""

    exact: frozenset[str]
    stems: frozenset[str]
    small: frozenset[str]
    """Those that stand in small letters somewhere."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Words:
        tokens = [token for text in texts for token in _TOKEN.findall(text)]
        return cls(
            frozenset(tokens),
            frozenset(_stem(token) for token in tokens),
            frozenset(token for token in tokens if token == token.casefold()),
        )


def verify(desk: Desk, run_id: str, *, accept: Sequence[str] = ()) -> SynthesisRun:
    """Return a run with the verdict on its draft, stored. `accept` are the places of sentences that
    a person answers for, as `section.sentence`. Raises NotFound, Denied, StateConflict before a
    draft, and InvalidInput.
    """
    run = desk.load(run_id, own=True)
    if run.stage in ("planned", "collected"):
        raise conflict(run, "there is no draft", "Draft it first.")
    with desk.step("verify", run.id) as step:
        draft = _accepted(desk, run, accept) if accept else run.draft
        run_now = run.replace(draft=draft, draft_digest=digest_of_draft(draft))
        verification = check(desk, run_now)
        changed = run_now.replace(
            stage="verified",
            verification=verification,
            recordings=(*run.recordings, step.run.id),
        )
        summary = {"verdict": verification.verdict, "digest": verification.digest}
        step.record("policy_check", None, summary=summary)
        return desk.store(changed, known_at=run.updated_at, event="synthesis.verify")


def _accepted(desk: Desk, run: SynthesisRun, accept: Sequence[str]) -> tuple[DraftSection, ...]:
    """Return the draft with the sentences that a person accepts. Raises Denied for an agent."""
    gate = desk.context.gate
    if desk.actor.agent is not None or not desk.actor.is_attended:
        gate.require_person(desk.actor, "write", desk.scope)
        raise InvalidInput("An agent answers for no sentence: a person accepts it.")
    places = set()
    for place in accept:
        numbers = _PLACE.fullmatch(place)
        if numbers is None:
            raise InvalidInput(f"`accept` {place[:20]!a} is no place: SECTION.SENTENCE is.")
        places.add((int(numbers[1]), int(numbers[2])))
    known = {(s.number, at) for s in run.draft for at, _ in enumerate(s.sentences, 1)}
    if places - known:
        raise InvalidInput("`accept` names sentences that the draft does not have.")
    return tuple(
        section.replace(
            sentences=tuple(
                each.replace(accepted_by=desk.actor.user)
                if (section.number, at) in places
                else each
                for at, each in enumerate(section.sentences, 1)
            )
        )
        for section in run.draft
    )


def check(desk: Desk, run: SynthesisRun) -> SynthesisVerification:
    """Return the verdict on a draft."""
    collected = {section.number: section for section in run.sections}
    unsupported: list[Claim] = []
    unsettled: list[Claim] = []
    bare: list[int] = []
    sentences = quoted = 0
    for section in run.draft:
        of = collected.get(section.number) or CollectedSection(
            number=section.number, path=section.path
        )
        by_template = () if run.model is not None else quoted_sentences(run.request, of)
        for place, each in enumerate(section.sentences, 1):
            sentences += 1
            checked = check_sentence(of, place, each, by_template)
            quoted += checked == _Checked(None, None) and each.span is not None
            unsupported += [checked.unsupported] if checked.unsupported else []
            unsettled += [checked.unsettled] if checked.unsettled else []
        if section.sentences and not of.source_ids:
            bare.append(section.number)
    ids = [item.memory_id for section in run.sections for item in section.items]
    shown = desk.visible_ids(ids)
    denied = [
        section.number
        for section in run.sections
        if any(item.memory_id not in shown for item in section.items)
    ]
    changed = desk.changed_items(run.sections)
    freshness, now = run.request.freshness, desk.context.store.clock.now()
    old = {
        section.number
        for section in run.sections
        if section.stale or any(is_aged(freshness, item.known_at, now) for item in section.items)
    }
    is_blocking = freshness.stale == "block"
    stale = sorted((set(changed) - set(denied)) | (old if is_blocking else set()))
    gaps = tuple(" / ".join(section.path) for section in run.draft if section.gap)
    pairs = sorted(
        {
            (min(item.memory_id, rival), max(item.memory_id, rival))
            for section in run.sections
            for item in section.items
            for rival in item.contradicted_by
        }
    )
    is_empty = bool(bare) or not any(section.source_ids for section in run.sections)
    verification = SynthesisVerification(
        verdict=_verdict(
            denied=bool(denied),
            is_empty=is_empty,
            unsupported=bool(unsupported),
            stale=bool(stale),
            gaps=bool(gaps or unsettled),
        ),
        sections=len(run.draft),
        with_sources=sum(bool(section.source_ids) for section in run.sections),
        sentences=sentences,
        quoted=quoted,
        unsupported=tuple(unsupported),
        unsettled=tuple(unsettled),
        contradictions=tuple(pairs),
        gaps=gaps,
        denied=tuple(denied),
        stale=tuple(stale),
    )
    body = verification.dump()
    return verification.replace(digest=digest_of([body, run.draft_digest]))


def _verdict(
    *, denied: bool, is_empty: bool, unsupported: bool, stale: bool, gaps: bool
) -> Verdict:
    if denied:
        return "blocked_policy_denial"
    if is_empty:
        return "blocked_missing_sources"
    if unsupported:
        return "blocked_unsupported_claims"
    if stale:
        return "blocked_stale_sources"
    return "passed_with_gaps" if gaps else "passed"


def check_sentence(
    section: CollectedSection,
    place: int,
    sentence: DraftSentence,
    by_template: Sequence[DraftSentence] = (),
) -> _Checked:
    """Return what speaks against a sentence, and what only a person can settle."""

    def claim(reason: ClaimReason, words: Sequence[str] = (), missing: Sequence[str] = ()) -> Claim:
        return Claim(
            section=section.number,
            sentence=place,
            text=sentence.text,
            reason=reason,
            words=tuple(words),
            missing=tuple(missing),
        )

    items = {item.handle: item for item in section.items}
    if not sentence.cites:
        return _Checked(claim("no_handle"), None)
    if any(handle not in items for handle in sentence.cites):
        return _Checked(claim("foreign_handle"), None)
    cited = [items[handle] for handle in sentence.cites]
    if sentence.span is not None:
        is_quoted = any(quotes(item, sentence.span) for item in cited)
        # What stands before a quotation is a slot of the template: it is filled anew.
        is_filled = sentence.by_model or sentence.replace(accepted_by=None) in by_template
        return _Checked(None if is_quoted and is_filled else claim("not_quoted"), None)
    reason, words = _stray(sentence.text, cited, section)
    if reason is not None:
        return _Checked(claim(reason, words), None)
    if sentence.accepted_by is not None:
        return _Checked(None, None)
    return _Checked(None, claim("not_quoted", words, _missing(sentence.text, cited)))


def quotes(item: SectionItem, span: str) -> bool:
    """Return True if a span stands in an item byte for byte."""
    own = item.text.encode("utf-8", "surrogatepass")
    return bool(span.strip()) and span.encode("utf-8", "surrogatepass") in own


def _stray(
    text: str, cited: Sequence[SectionItem], section: CollectedSection
) -> tuple[ClaimReason | None, tuple[str, ...]]:
    """Return what a sentence says that nothing it cites does, and the words of it."""
    known = _Words.of(_texts(cited))
    around = _Words.of(_texts(section.items))
    numbers, names, words = list[str](), list[str](), list[str]()
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in known.exact:
            continue
        if token[0].isdigit():
            numbers.append(token)
        elif token != token.casefold() and not _is_opening(text, match.start()):
            # In the middle of a sentence a capital makes a name; it is spelt as it is.
            if token.casefold() not in known.small:
                names.append(token)
        elif _stem(token) in known.stems or token.casefold() in known.small:
            continue
        elif token != token.casefold() and token.casefold() not in around.small:
            # Nobody writes it small: at the beginning too it may be a name.
            (names if len(token) > _SHORT else words).append(token)
        else:
            words.append(token)
    if numbers:
        return "number", tuple(numbers)
    if names:
        return "name", tuple(names)
    said = [each for each in words if len(each) > _SHORT]
    is_much = sum(map(len, said)) >= _STRAY_LETTERS
    return ("words" if is_much else None), tuple(words)


def _missing(text: str, cited: Sequence[SectionItem]) -> tuple[str, ...]:
    """Return the words of the nearest sentence of what is cited that a sentence has not."""
    own = _Words.of([text])
    spans = [each[a:b] for each in _texts(cited) for a, b in whole_sentences(each)]
    if not spans:
        return ()
    nearest = max(spans, key=lambda span: len(own.stems & _Words.of([span]).stems))
    tokens = dict.fromkeys(_TOKEN.findall(nearest))
    return tuple(each for each in tokens if _stem(each) not in own.stems)


def _texts(items: Iterable[SectionItem]) -> list[str]:
    return [text for item in items for text in (item.text, canonical_text(item)) if text]


def canonical_text(item: SectionItem) -> str:
    """Return the attributes of an item as text, by which a sentence may be borne out too."""
    return json_bytes(dict(item.attributes)).decode() if item.attributes else ""


def _is_opening(text: str, start: int) -> bool:
    before = text[:start].rstrip(" \"'“„«(¿¡")
    return not before or before[-1] in ".!?。！？…:："


def _stem(word: str) -> str:
    folded = word.casefold()
    return folded[: max(4, len(folded) - 3)]
