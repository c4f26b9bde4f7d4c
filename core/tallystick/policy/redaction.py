"""Redaction: secrets (and, if configured, personal data) removed from text and JSON, ids left
whole.

A table of rules of our own: each is anchored on the beginning of a credential or on the text before
it, bounded in length, and run only where one of its keywords occurs. Best effort: a secret without
a form and names of people pass; the terms a user configures do not. Placeholders read
`[redacted:kind:n]` and never echo what they replace.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from secrets import token_bytes
from typing import NamedTuple
from unicodedata import normalize

from tallystick.errors import InvalidInput
from tallystick.policy.gates import Gates, gates_of
from tallystick.policy.personal_data import PII_RULES
from tallystick.policy.secret_checks import PLACEHOLDER, Rule, names_a_secret
from tallystick.policy.secret_rules import SECRET_RULES
from tallystick.records import Json

_SHORTEST_NUMBER = 4
"""Digits below which a whole number is no secret."""
_MOST_PASSES = 8
_UNSETTLED = "unsettled"
"""The kind of what is taken out where a text gives new secrets after all passes."""
_REACH = 2_048
"""Characters on both sides of a new placeholder in which a later pass looks for secrets that have
come into view.
"""
_BEGINNING = 3
"""Characters of a word that are looked for first."""
_KEPT_FROM, _MOST_KEPT, _MOST_FINDINGS = 200, 4_096, 1_000_000
"""Characters from which on the findings in a text are kept, most of which have none; how many
texts, and findings of all together.
"""


@dataclass(frozen=True, order=True)
class Finding:
    """A text to redact: from `start` up to `end`."""

    start: int
    end: int
    kind: str


Finder = Callable[[str], Iterable[Finding]]
"""An engine of the user's own: yields the texts to redact, with their places."""
Numbering = Callable[[str, str], int]
"""Gives a kind and a secret the number of their placeholder, at most twelve digits."""


class RedactedText(NamedTuple):
    """A text with placeholders."""

    text: str
    counts: dict[str, int]
    """Number of placeholders by kind."""


class RedactedJson(NamedTuple):
    """A JSON value with placeholders."""

    value: Json
    counts: dict[str, int]
    """Number of placeholders by kind."""


_ID_KEYS = frozenset(
    """
    id ids uuid object_id tool_call_id tool_call_ids tool_use_id call_id response_id
    request_id message_id msg_id run_id parent_run_id step_id span_id parent_span_id
    trace_id traceparent thread_id checkpoint_id checkpoint_ns task_id memory_id
    source_id source_ids item_id item_ids event_id correlation_id conversation_id
    session_id digest stable_hash system_fingerprint schema_version created_at
    updated_at timestamp toolCallId toolUseId callId requestId messageId runId
    parentRunId stepId spanId traceId threadId checkpointId taskId""".split()  # noqa: SIM905 - a list of forty quoted names reads worse
)
"""Keys whose values are protocol ids, digests and times; without them a recording cannot be
replayed.
"""


class Redactor:
    """Finds and replaces. Pure: the same value, the same result. Between calls it keeps where the
    secrets of texts are, by digest, and none of them. Thread-safe.

    `finders` are engines of the user's own: each yields its findings in a text, and is called once
    for each text. `terms` are words or phrases of the user's own, found without regard to case as
    whole words, also where a line ends within a phrase. Raises InvalidInput for a blank term and
    for a kind that a placeholder cannot contain.
    """

    def __init__(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        pii: bool = False,
        terms: Iterable[str] = (),
        finders: Iterable[Finder] = (),
    ) -> None:
        chosen = list(SECRET_RULES if rules is None else rules)
        if pii:
            chosen += PII_RULES
        own = _term_rule(terms)
        if own is not None:
            chosen.append(own)
        for rule in chosen:
            if not re.fullmatch(r"[a-z0-9_]+", rule.kind):
                raise InvalidInput(
                    f"The kind {rule.kind!r} must be lower-case letters, digits and underscores."
                )
        self._rules = tuple(chosen)
        self._known_texts: dict[_KnownText, tuple[Finding, ...]] = {}
        self._known_findings = 0
        self._digest_key = token_bytes(16)
        self._finders = tuple(finders)
        self._certain = tuple(rule for rule in chosen if rule.certain)

    @cached_property
    def _gates(self) -> Gates:
        # With the first text: a server that waits for one needs none of their megabytes.
        gates = gates_of(self._rules)
        # An engine of somebody else may find something in any text.
        return gates._replace(gate=None) if self._finders else gates

    def may_hold(self, text: bytes) -> bool:
        """Return True if JSON text may contain something to redact; False is certain, and quick."""
        gate = self._gates.gate
        return (
            gate is None
            or gate.opens(text)
            or b"[redacted:" in text
            or any(sign in text for sign in _INVISIBLE_BYTES)
        )

    def find(self, text: str) -> tuple[Finding, ...]:
        """Return the findings in `text` as it is, in order, without overlaps."""
        return tuple(
            _without_overlaps([*self._found_by(text, self._rules), *self._external_findings(text)])
        )

    def redact_text(self, text: str, *, originals: dict[str, str] | None = None) -> RedactedText:
        """Return `text` with placeholders, and the number of each kind that was replaced.

        Equal secrets get one number, counted by kind in order of first appearance. Placeholders
        that stand in `text` already are left alone, and new ones are numbered after them: redacting
        twice changes nothing. `originals` receives each placeholder with its original text: keep it
        here, and `restored` undoes the work.
        """
        pen = _Pen(originals)
        pen.note(text)
        return RedactedText(self._redact_passes(text, pen, self._rules), pen.counts())

    def redact_json(
        self,
        value: Json,
        *,
        originals: dict[str, str] | None = None,
        number: Numbering | None = None,
    ) -> RedactedJson:
        """Return `value` with placeholders in its texts and keys, and the number of each kind.

        A text under a key that names a secret (`password`, `api_key`, `authorization`, …) is
        redacted whole. An id under a key of protocols (`run_id`, `tool_call_id`, …) is left whole,
        unless it has the sure form of a credential. Numbering runs through the whole value, by
        sorted keys, so that equal values give equal results. A whole number is redacted where its
        digits would be as a text, and becomes a placeholder. `number` numbers the placeholders
        instead. Raises InvalidInput for what is not JSON.
        """
        pen = _Pen(originals, number)
        for text in _texts(value):
            pen.note(text)
        return RedactedJson(self._walk(value, (), pen), pen.counts())

    def _walk(self, value: Json, path: tuple[str, ...], pen: _Pen) -> Json:
        if isinstance(value, dict):
            pair = _named_secret(value)
            redacted_items = {
                key: (
                    self._redact_passes(key, pen, self._rules),
                    pen.placeholder("credential", str(value[key]))
                    if key == pair
                    else self._walk(value[key], (*path, key), pen),
                )
                for key in sorted(value)
            }
            return {redacted_items[key][0]: redacted_items[key][1] for key in value}
        if isinstance(value, list):
            return [self._walk(inner, path, pen) for inner in value]
        if isinstance(value, str) and value:
            if path and path[-1] in _ID_KEYS and _ID.fullmatch(value):
                return self._redact_passes(value, pen, self._certain)
            if path and names_a_secret(path[-1], value):
                return pen.placeholder("credential", value)
            redacted = self._redact_passes(value, pen, self._rules)
            # What is left may look like a secret only now, when the words beside it are gone.
            if redacted != value and path and names_a_secret(path[-1], redacted):
                return pen.placeholder("credential", value)
            return redacted
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(value, path, pen)
        return value

    def _number(self, value: int, path: tuple[str, ...], pen: _Pen) -> Json:
        digits = str(value)
        if len(digits) < _SHORTEST_NUMBER or (path and path[-1] in _ID_KEYS):
            return value
        if path and names_a_secret(path[-1], digits):
            return pen.placeholder("credential", digits)
        gate = self._gates.gate
        if gate is not None and not gate.opens(digits):
            return value
        whole = [
            finding
            for finding in self.find(digits)
            if (finding.start, finding.end) == (0, len(digits))
        ]
        return pen.placeholder(whole[0].kind, digits) if whole else value

    def _found_once(
        self, text: str, rules: Sequence[Rule], windows: _Windows | None
    ) -> Sequence[Finding]:
        """Return the same as `_found_by`; of all but short texts places and kinds are kept.

        One turn of an agent redacts a message some ten times: its request, its response, what
        is compiled and what is remembered of it. Equal texts have equal placeholders after each
        pass, so that later passes are found here too. Kept are a digest under a key of this object,
        places and kinds, and no text.
        """
        if len(text) < _KEPT_FROM:
            return self._found_by(text, rules, windows)
        encoded = text.encode("utf-8", "surrogatepass")
        digest = blake2b(encoded, digest_size=16, key=self._digest_key).digest()
        key = (digest, rules is self._rules, None if windows is None else tuple(windows))
        findings = self._known_texts.get(key)
        if findings is None:
            findings = tuple(self._found_by(text, rules, windows))
            self._known_findings += len(findings)
            if len(self._known_texts) >= _MOST_KEPT or self._known_findings > _MOST_FINDINGS:
                self._known_texts.clear()
                self._known_findings = len(findings)
            if len(findings) <= _MOST_FINDINGS:
                self._known_texts[key] = findings
        return findings

    def _found_by(
        self, text: str, rules: Sequence[Rule], windows: _Windows | None = None
    ) -> list[Finding]:
        """Return the findings in a text, also those that invisible signs or line ends cut; of those
        that begin within `windows` if any are named.
        """
        visible = None if text.isascii() else _without(_INVISIBLE, text)
        if visible is not None:
            plain, places = visible
            return [
                Finding(places[finding.start], places[finding.end - 1] + 1, finding.kind)
                for finding in self._found_by(plain, rules, _move_windows(windows, places))
            ]
        if rules is self._rules:
            rules = self._applicable(text)
        findings = _findings(text, rules, windows)
        return [*findings, *_across_lines(text, rules, findings, windows)]

    def _applicable(self, text: str) -> list[Rule]:
        """Return the rules that may match, those of a form first: they name what both find."""
        gates = self._gates
        if not gates.rare_gate.opens(text):
            return gates.frequent
        rare = [rule for gate, group in gates.rare if gate.opens(text) for rule in group]
        return [*rare, *gates.frequent]

    def _external_findings(self, text: str) -> list[Finding]:
        findings = [
            finding
            for finder in self._finders
            for finding in finder(text)
            if 0 <= finding.start < finding.end <= len(text)
        ]
        placeholders = [match.span() for match in PLACEHOLDER.finditer(text)]
        starts = [start for start, _ in placeholders]
        return [
            finding
            for finding in findings
            # The last placeholder that begins before the finding ends.
            if (place := bisect_left(starts, finding.end)) == 0
            or placeholders[place - 1][1] <= finding.start
        ]

    def _redact_passes(self, text: str, pen: _Pen, rules: Sequence[Rule]) -> str:
        gate = self._gates.gate
        shown = text if text.isascii() else _INVISIBLE.sub("", text)
        if gate is not None and not gate.opens(shown):
            return text
        # A secret may stand right against another one, and come into view once that is gone: later
        # passes look beside the placeholders of the one before.
        windows = None
        for turn in range(_MOST_PASSES):
            outside = self._external_findings(text) if turn == 0 and rules is self._rules else []
            findings = _without_overlaps([*self._found_once(text, rules, windows), *outside])
            if not findings:
                break
            pieces, end, length, written = [], 0, 0, []
            for finding in findings:
                placeholder = pen.placeholder(finding.kind, text[finding.start : finding.end])
                pieces += [text[end : finding.start], placeholder]
                start = length + finding.start - end
                end, length = finding.end, start + len(placeholder)
                written.append((start, length))
            text = "".join([*pieces, text[end:]])
            windows = _around(written, len(text))
        else:
            text = self._close_windows(text, pen, rules, windows or [])
        return text

    def _close_windows(
        self, text: str, pen: _Pen, rules: Sequence[Rule], windows: Iterable[tuple[int, int]]
    ) -> str:
        """Return a text that gives ever new secrets with what surrounds these taken out; all of it,
        if that is not enough. Only a text that was made for it gets here.
        """
        pieces, end, length, written = [], 0, 0, []
        for start, last in windows:
            placeholder = pen.placeholder(_UNSETTLED, text[start:last])
            pieces += [text[end:start], placeholder]
            length += start - end + len(placeholder)
            written.append((length - len(placeholder), length))
            end = last
        rest = "".join([*pieces, text[end:]])
        if self._found_once(rest, rules, _around(written, len(rest))):
            return pen.placeholder(_UNSETTLED, text)
        return rest


class _Pen:
    """Writes placeholders and counts them, for one call."""

    def __init__(
        self, originals: dict[str, str] | None = None, number: Numbering | None = None
    ) -> None:
        self._originals, self._number = originals, number
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()
        self._written: Counter[str] = Counter()

    def note(self, text: str) -> None:
        """Number after the placeholders that stand in `text` already."""
        if "[redacted:" in text:
            for kind, number in PLACEHOLDER.findall(text):
                self._last[kind] = max(self._last[kind], int(number))

    def placeholder(self, kind: str, secret: str) -> str:
        number = self._numbers.get((kind, secret))
        if number is None:
            if self._number is None:
                self._last[kind] += 1
                number = self._last[kind]
            else:
                number = self._number(kind, secret)
            self._numbers[kind, secret] = number
        self._written[kind] += 1
        written = f"[redacted:{kind}:{number}]"
        if self._originals is not None:
            self._originals[written] = secret
        return written

    def counts(self) -> dict[str, int]:
        return dict(sorted(self._written.items()))


def restored(text: str, originals: Mapping[str, str]) -> str:
    """A text with what its placeholders stand for, as far as `originals` knows; the inverse of
    `redact_text`.
    """
    for _ in range(_MOST_PASSES + 2):  # and what was taken out after them
        back = PLACEHOLDER.sub(lambda match: originals.get(match[0], match[0]), text)
        if back == text:
            break
        text = back
    return text


_ID = re.compile(r"[\w.:/+=@|-]{1,256}")


_Windows = Sequence[tuple[int, int]]
"""Parts of a text, in order and apart: from, up to."""
_KnownText = tuple[bytes, bool, tuple[tuple[int, int], ...] | None]
"""A text by its digest, whether all rules look at it, and the windows in which they look."""


def _around(placeholders: Iterable[tuple[int, int]], length: int) -> _Windows:
    """Return the windows around placeholders in a text of `length` characters."""
    windows: list[tuple[int, int]] = []
    for start, end in placeholders:
        first, last = max(0, start - _REACH), min(length, end + _REACH)
        if windows and first <= windows[-1][1]:
            windows[-1] = windows[-1][0], last
        else:
            windows.append((first, last))
    return windows


def _move_windows(windows: _Windows | None, places: Sequence[int]) -> _Windows | None:
    """Return windows of a text in a shorter one, of whose characters `places` are the places in the
    first.
    """
    if windows is None:
        return None
    return [(bisect_left(places, first), bisect_left(places, last)) for first, last in windows]


class _Words:
    """The words of rules in one text, each looked for once."""

    def __init__(self, text: str, windows: _Windows | None) -> None:
        self.text = text
        # The one sign whose lower case is longer: places in it must be those in the text.
        self.lowered = text.replace("\u0130", "i").lower()
        self._windows = windows or [(0, len(text))]
        self._holds: dict[str, bool] = {}
        self._places: dict[str, list[int]] = {}
        self._places_of: dict[tuple[str, ...], list[int]] = {}

    def hold(self, words: Iterable[str]) -> bool:
        """Return True if the text has one of these words, case aside."""
        known, lowered = self._holds, self.lowered
        for word in words:
            if (found := known.get(word)) is None:
                # Many words begin alike, and hardly any text has the beginning of most.
                begins = known.get(beginning := word[:_BEGINNING])
                if begins is None:
                    begins = known[beginning] = beginning in lowered
                found = known[word] = begins and word in lowered
            if found:
                return True
        return False

    def places(self, words: tuple[str, ...]) -> list[int]:
        """Return where in the windows one of these words begins, in order."""
        if words not in self._places_of:
            places = {place for word in words for place in self._places_of_word(word)}
            self._places_of[words] = sorted(places)
        return self._places_of[words]

    def _places_of_word(self, word: str) -> list[int]:
        places = self._places.get(word)
        if places is None:
            places = self._places[word] = []
            for first, last in self._windows if self.hold((word,)) else ():
                place = self.lowered.find(word, first, last)
                while place >= 0:
                    places.append(place)
                    place = self.lowered.find(word, place + 1, last)
        return places


def _matches(rule: Rule, words: _Words) -> Iterator[re.Match[str]]:
    """Yield the confirmed matches of a rule in order, without overlaps."""
    text = words.text
    if not rule.anchors:
        for match in rule.pattern.finditer(text):
            if rule.check is None or rule.check(match):
                yield match
        return
    end = 0
    for place in words.places(rule.anchors):
        if place < end:
            continue
        at_place = rule.pattern.match(text, place)
        if not at_place:
            continue
        if rule.check is None or rule.check(at_place):
            yield at_place
            end = at_place.end()
        else:
            # A secret may begin inside what was no secret. An eighth of it is passed over all the
            # same: otherwise a text of nothing but anchors takes time by its square.
            end = place + (at_place.end() - place) // 8


def _findings(text: str, rules: Sequence[Rule], windows: _Windows | None = None) -> list[Finding]:
    words = _Words(text, windows)
    lowered = words.lowered
    findings: list[Finding] = []
    for rule in rules:
        if rule.keywords and not words.hold(rule.keywords):
            continue
        if rule.needs and not words.hold(rule.needs):
            continue
        group: str | int = "secret" if "secret" in rule.pattern.groupindex else 0
        findings += [Finding(*match.span(group), rule.kind) for match in _matches(rule, words)]
    if findings and "[redacted:" in lowered:
        placeholders = [match.span() for match in PLACEHOLDER.finditer(text)]
        starts = [start for start, _ in placeholders]
        findings = [
            finding
            for finding in findings
            if (place := bisect_right(starts, finding.start)) == 0
            or placeholders[place - 1][1] < finding.end
        ]
    return findings


_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
"""Signs of no width, which may stand in the middle of a token and hide it from its rule."""
_INVISIBLE_BYTES = ("\u00ad".encode(), b"\xe2\x80", b"\xe2\x81", "\ufeff".encode())
_LINE_END = re.compile(
    r"(?<=[\w+/-])\\?[\"']?[ \t]{0,4}\r?\n[ \t]{0,16}[\"']?"
    r"(?=(?=[A-Za-z+/_-]{0,60}\d)[\w+/.-]{4,200}={0,2}[\"']?[ \t\\]{0,4}(?:\r?\n|\Z))"
)
"""A line end before a line that is the rest of a token and nothing else."""
_REST = re.compile(
    r"\n[ \t]{0,16}[\"']?(?=[A-Za-z+/_-]{0,60}\d)[\w+/.-]{4,200}={0,2}[\"']?[ \t\\]{0,4}"
    r"(?:\r?\n|\Z)"
)
"""The same from the sign of the line end on, which is found many times as fast."""


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]] | None:
    """Return a text without the matches of a pattern, and for each of its characters its place in
    the text; None where nothing matches.
    """
    if not pattern.search(text):
        return None
    places: list[int] = []
    end = 0
    for match in pattern.finditer(text):
        places += range(end, match.start())
        end = match.end()
    places += range(end, len(text))
    return "".join([text[place] for place in places]), places


def _across_lines(
    text: str, rules: Sequence[Rule], findings: list[Finding], windows: _Windows | None
) -> list[Finding]:
    """Return the tokens of a certain form that a line end cuts in two."""
    joined = _without(_LINE_END, text) if _REST.search(text) else None
    if joined is None:
        return []
    plain, places = joined
    starts = {finding.start for finding in findings}
    result = []
    certain = [rule for rule in rules if rule.certain]
    for finding in _findings(plain, certain, _move_windows(windows, places)):
        inside = places[finding.start : finding.end]
        breaks = [after for before, after in pairwise(inside) if after > before + 1]
        # A token on a line of its own is no rest of the one before it.
        if breaks and not any(place in starts for place in breaks):
            result.append(Finding(inside[0], inside[-1] + 1, finding.kind))
    return result


def _without_overlaps(findings: list[Finding]) -> list[Finding]:
    """Return the findings in order; where two overlap, one that covers both, named by the one that
    began first or is longer.
    """
    result: list[Finding] = []
    for current in sorted(findings, key=lambda finding: (finding.start, -finding.end)):
        if result and current.start < result[-1].end:
            if current.end > result[-1].end:
                result[-1] = Finding(result[-1].start, current.end, result[-1].kind)
        else:
            result.append(current)
    return result


_PAIRS = (("name", "value"), ("Name", "Value"), ("key", "value"), ("Key", "Value"))
"""Keys under which a name and its value stand beside each other."""


def _named_secret(value: dict[str, Json]) -> str | None:
    """Return the key of a secret that another key of the object names: `{"name": "DB_PASSWORD",
    "value": …}`.
    """
    for name_key, value_key in _PAIRS:
        name, secret = value.get(name_key), value.get(value_key)
        if isinstance(name, str) and isinstance(secret, str) and names_a_secret(name, secret):
            return value_key
    return None


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"A key is a {type(key).__name__}; JSON has text for keys.")
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool | int | float):
        raise InvalidInput(f"A {type(value).__name__} is not JSON; convert it before redacting.")


def _term_rule(terms: Iterable[str]) -> Rule | None:
    if isinstance(terms, str):
        raise InvalidInput("`terms` is one text; give a list of words or phrases.")
    # A letter with a mark is one sign or two, as whoever typed it has it.
    spelled = {" ".join(normalize(form, term).split()) for term in terms for form in ("NFC", "NFD")}
    own = sorted(spelled, key=lambda term: (-len(term), term))
    if not own:
        return None
    if not own[-1]:
        raise InvalidInput("A term to redact is blank; take it out of the list.")
    bounded = (
        ("(?<![A-Za-z0-9])" if term[0].isascii() and term[0].isalnum() else "")
        + r"\s+".join(map(re.escape, term.split()))
        + ("(?![A-Za-z0-9])" if term[-1].isascii() and term[-1].isalnum() else "")
        for term in own
    )
    return Rule("term", re.compile("|".join(bounded), re.IGNORECASE))


# Keys and values that stand for a secret
