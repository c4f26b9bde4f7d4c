"""A deterministic policy in the place of a model: it answers from what stands in its context only.

So it measures what an arm puts into the context, and not how clever a model is. The answer is the
sentence with most of the question's words and meaning; of several with nearly as much, the one that
says that something changed, else the one with the later date, else the last. It uses tools as a
model would: it searches a memory before it answers, writes down what the user states, reads a file
that the request names, and mends it by the convention in its context. It obeys an instruction in a
system or user message, and none in the result of a tool or in text that says that it is data.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from tallystick.embedding import StaticEmbedder

UNKNOWN = "I do not know."
_NOTES = "/memories/notes.md"
_ENOUGH = 0.5
"""Score below which the policy says that it does not know."""
_NEARLY = 0.85
"""Part of the best score with which a sentence is as good as the best."""
_MEANING = 0.6
"""Weight of the cosine of two sentences, beside the share of words that they have in common."""
_SUMMARY = 800
"""Characters of a summary."""
_MOST_FACTS = 40
"""Facts that a list of facts is cut down to, the newest."""
_SUMMARIZED = "Here is a summary of the conversation to date"
_ASKED = "The user asks: "
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
    a about according after all an and any are as at be been before by did do does each for from had
    has have her his how i if in into is it its me my no nobody not of on or our s say said says she
    so than that the their them then there these they this those to up was we were what when where
    which while who why will with you your
    """,
    )
)
_CHANGED = re.compile(
    r"\b(now|from now on|no longer|changed my mind|instead|again|since)\b", re.IGNORECASE
)
_INJECTED = re.compile(
    r"\b(?:note|instruction|message)s? (?:to|for) the assistant\b|\bas an ai\b", re.IGNORECASE
)
_IS_DATA = re.compile(r"not instructions|untrusted|data, not", re.IGNORECASE)
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]*>")
_SENTENCE = re.compile(r"(?<=[.!?])[\s\"'”]+|\n+")
_CODE = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"\b\w+\.(?:py|txt|md)\b")
_REFERENCE = re.compile(r"\b[A-Z]-\d+\b")
_DURABLE = re.compile(
    r"\b(decided|agreed|settled|must|may|nobody|never|always|from now on|prefer|cause|plan|number"
    r"|step|now)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """A message of a request, whatever runtime it comes from."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Reply:
    """The answer: a text, or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class _Sentence:
    text: str
    place: int
    date: str = ""
    is_trusted: bool = True
    is_file: bool = False
    words: frozenset[str] = field(default=frozenset(), compare=False)


def reply(messages: Sequence[Message], tools: Sequence[str]) -> Reply:
    """Return the answer to a request, with tools of these names at hand."""
    last = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    request = messages[last].text
    if _SUMMARIZED in request:
        # A compaction in the midst of a turn took the request along.
        request = request.partition(_ASKED)[2] or request
    if "Messages to summarize:" in request:
        return Reply(_summary(request.partition("Messages to summarize:")[2]))
    if "## New Messages" in request and request.rstrip().endswith("# Output:"):
        return Reply(_facts(request.partition("## New Messages")[2].partition("\n## ")[0]))
    if "precise fact extraction system" in request:
        return Reply(_tagged(_stated(messages[:last])))
    if "precise fact condensing system" in request:
        existing = request.partition("</existing_facts>")[0]
        return Reply(_tagged(re.findall(r"<fact>(.*?)</fact>", existing, re.DOTALL)[-_MOST_FACTS:]))
    since = messages[last + 1 :]
    done = Counter(call.name for message in since for call in message.calls)
    asks = _asks(request)
    if not asks and "manage_memory" in tools and not done["manage_memory"]:
        return Reply(calls=(Call("manage_memory", {"content": request, "action": "create"}),))
    if "memory" in tools and (command := _command(request, since, asks)):
        return Reply(calls=(Call("memory", command),))
    if not asks:
        return Reply("Noted.")
    if "search_memory" in tools and not done["search_memory"]:
        return Reply(calls=(Call("search_memory", {"query": request}),))
    named = _FILE.search(request)
    if named and "read_file" in tools and not done["read_file"]:
        return Reply(calls=(Call("read_file", {"path": named[0]}),))
    context = [each for each in _sentences(messages, last) if each.text not in request]
    if named and "mend" in request.casefold() and "replace_in_file" in tools:
        if done["replace_in_file"]:
            return Reply("Mended.")
        return _mend(request, named[0], context)
    return Reply(_answer(request, context))


def _asks(request: str) -> bool:
    first = request.split("\n", 1)[0].strip()
    return first.endswith("?") or bool(re.search(r"\b(read|mend|tell me)\b", first, re.IGNORECASE))


def _command(request: str, since: Sequence[Message], asks: bool) -> dict[str, Any] | None:
    """Return the next command over memory as files: a view before an answer, the user's statements
    as lines of the notes, in a file that may have to be made first; None where all is done.
    """
    given = [
        call.arguments["command"] for each in since for call in each.calls if call.name == "memory"
    ]
    if asks:
        return None if "view" in given else {"command": "view", "path": _NOTES}
    stated = "\n".join(_stated([Message("user", request)]))
    if stated and not given:
        return {"command": "insert", "path": _NOTES, "insert_line": 0, "insert_text": stated}
    if given == ["insert"] and "does not exist" in since[-1].text:
        return {"command": "create", "path": _NOTES, "file_text": stated}
    return None


# Answering


def _answer(request: str, context: Sequence[_Sentence]) -> str:
    wanted = _words(request)
    for sentence in context:
        if _INJECTED.search(sentence.text) and sentence.is_trusted and wanted & sentence.words:
            payload = re.search(r"“([^”]+)", sentence.text)
            return payload[1] if payload else sentence.text
    facts = [each for each in context if not _INJECTED.search(each.text) and "`" not in each.text]
    best = _best(request, facts)
    if best is None:
        return UNKNOWN
    if re.search(r", and .*\b(?:which|where)\b", request) and not _REFERENCE.search(best.text):
        sources = [each for each in facts if _REFERENCE.search(each.text)]
        if sources:
            nearest = min(sources, key=lambda each: abs(each.place - best.place))
            return f"{best.text} {nearest.text}"
    return best.text


def _mend(request: str, path: str, context: Sequence[_Sentence]) -> Reply:
    wrong = _CODE.search(request)
    conventions = [each for each in context if _CODE.search(each.text) and not each.is_file]
    best = _best(request, conventions, enough=0.0)
    right = _CODE.findall(best.text) if best else []
    if wrong is None or not right:
        return Reply("I do not know the convention.")
    arguments = {"path": path, "old": wrong[1], "new": right[-1]}
    return Reply(calls=(Call("replace_in_file", arguments),))


def _best(
    request: str, sentences: Sequence[_Sentence], *, enough: float = _ENOUGH
) -> _Sentence | None:
    if not sentences:
        return None
    distinct = list({each.text: each for each in sentences}.values())
    seen = Counter(word for each in distinct for word in each.words)
    weight = {word: math.log(1 + len(distinct) / (1 + seen[word])) for word in _words(request)}
    total = sum(weight.values()) or 1.0
    vectors = _vectors((request, *(each.text for each in distinct)))
    meaning = vectors[1:] @ vectors[0]
    scores = [
        sum(weight.get(word, 0.0) for word in each.words) / total + _MEANING * float(meaning[n])
        for n, each in enumerate(distinct)
    ]
    highest = max(scores)
    if highest < enough:
        return None
    near = [
        each for each, score in zip(distinct, scores, strict=True) if score >= _NEARLY * highest
    ]
    return max(near, key=lambda each: (bool(_CHANGED.search(each.text)), each.date, each.place))


# Reading


def _sentences(messages: Sequence[Message], last: int) -> list[_Sentence]:
    """Return the statements of a context but for the request, in their order."""
    result: list[_Sentence] = []
    paths: list[str] = []
    for number, message in enumerate(messages):
        paths += [call.name for call in message.calls]
        if number == last and _SUMMARIZED not in message.text:
            continue
        is_file = message.role == "tool" and bool(paths) and paths[-1] == "read_file"
        for text, date, is_data in _texts(message.text):
            for part in _SENTENCE.split(text):
                sentence = re.sub(r"^[-*•]\s+", "", part.strip())
                if len(sentence) < 4 or _asks(sentence) or UNKNOWN in sentence:
                    continue
                dates = _DATE.findall(part)
                result.append(
                    _Sentence(
                        sentence,
                        place=len(result),
                        date=max(dates, default=date),
                        is_trusted=message.role in ("system", "user") and not is_data,
                        is_file=is_file,
                        words=_words(sentence),
                    )
                )
    return result


def _texts(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the texts within a message: those of a JSON value, or of its tagged blocks."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, (list, dict)):
        for leaf, date in _leaves(value, ""):
            yield leaf, date, False
        return
    # A block that says of itself that it is data is data to its end.
    blocks = re.split(r"(<[a-zA-Z][\w-]*[^<>\n]*>)", text)
    for before, block in pairwise(["", *blocks]):
        if _TAG.fullmatch(block):
            continue
        inner, _, after = block.partition("</")
        is_data = bool(_IS_DATA.search(inner)) and bool(_TAG.fullmatch(before))
        yield inner, "", is_data
        yield _TAG.sub("\n", f"</{after}") if after else "", "", False


def _leaves(value: Any, date: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        own = value.get("updated_at") or value.get("created_at") or date
        for each in value.values():
            yield from _leaves(each, str(own))
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, date)
    elif isinstance(value, str) and " " in value.strip():
        yield value, date


def _words(text: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9][a-z0-9'-]*", text.casefold())
    return frozenset(_stemmer().stemWords([word for word in words if word not in _STOP]))


@cache
def _stemmer() -> Any:
    return importlib.import_module("Stemmer").Stemmer("english")


def _vectors(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    return np.stack([_vector(text) for text in texts])


@lru_cache(maxsize=20_000)
def _vector(text: str) -> Any:
    return np.asarray(_embedder().embed([text])[0], dtype=np.float32)


@cache
def _embedder() -> StaticEmbedder:
    return StaticEmbedder()


# What middleware and memories ask a model for


def _summary(text: str) -> str:
    """Return the sentences of the user that look durable, newest first while they fit, in order."""
    messages = re.findall(r'<message type="human">(.*?)</message>', text, re.DOTALL)
    said = [
        sentence
        for message in messages
        for sentence in _SENTENCE.split(message)
        if len(sentence) > 3 and _SUMMARIZED not in sentence
    ]
    durable = [sentence for sentence in said if _DURABLE.search(sentence)]
    others = [sentence for sentence in said if sentence not in durable]
    chosen: list[str] = []
    for sentence in [*reversed(durable), *reversed(others)]:
        if sum(map(len, chosen)) + len(sentence) <= _SUMMARY and sentence not in chosen:
            chosen.append(sentence)
    asked = [f"{_ASKED}{messages[-1]}"] if messages and _asks(messages[-1]) else []
    return "\n".join([*(each for each in dict.fromkeys(said) if each in chosen), *asked])


def _facts(text: str) -> str:
    """Return what the user stated as the JSON that mem0 asks for."""
    turns = [line.strip().partition("user: ")[2] for line in text.splitlines()]
    facts = _stated([Message("user", turn) for turn in turns if turn])
    return json.dumps({"memory": [{"id": str(n), "text": fact} for n, fact in enumerate(facts)]})


def _stated(messages: Sequence[Message]) -> list[str]:
    """Return the statements of the user: whole sentences, no requests and no lines of a log."""
    return [
        sentence.strip()
        for message in messages
        if message.role == "user" and not _asks(message.text)
        for sentence in _SENTENCE.split(message.text)
        if re.search(r"[.!”]$", sentence.strip())
    ]


def _tagged(facts: Sequence[str]) -> str:
    return "<facts>" + "".join(f"<fact>{fact}</fact>" for fact in facts) + "</facts>"
