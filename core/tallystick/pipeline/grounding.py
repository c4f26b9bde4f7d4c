"""Grounds: whether a text says what a fact says that somebody drew from it.

A model invents, and a text may talk it into inventing. So a fact changes a memory only where the
text itself has its names, its numbers and most of its words, and denies or ends something where the
fact does.
"""

from __future__ import annotations

import re

from tallystick.pipeline.changes import read
from tallystick.pipeline.extract import sentences
from tallystick.pipeline.statements import Statement, read_statement
from tallystick.ranking import analyze

_MOST_NEW = 0.5
"""The part of a fact's words that its text may lack, for the fact to be kept as one."""
_MOST_REWORDED = 0.34
"""The same, for the fact to change a memory."""
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")


def has_words_of(fact: str, text: str) -> bool:
    """Return True if at least half of a fact's words of meaning are in the text."""
    return _missing(fact, text) <= _MOST_NEW


def is_said(fact: str, text: str) -> bool:
    """Return True if a text says a fact, in other words at most in part: the fact's names, numbers
    and two thirds of its words are there, and the sentence that has most of them denies or ends
    something if and only if the fact does.
    """
    said = [each.text for each in sentences(text)] or [text]
    if " ".join(fact.split()) in {" ".join(each.split()) for each in (*said, text)}:
        return True
    if _missing(fact, text) > _MOST_REWORDED:
        return False
    if set(_DIGITS.findall(fact)) - set(_DIGITS.findall(text)):
        return False
    if read(fact).names - set(analyze(text)):
        return False
    statement, words = read_statement(fact), set(analyze(fact))
    near = max(said, key=lambda each: len(words.intersection(analyze(each))))
    return _is_denial(statement, read_statement(near))


def _is_denial(fact: Statement, said: Statement) -> bool:
    """Return True if both deny or end something, or neither; a sentence that says what ended may
    say what came instead.
    """
    if _denies(fact):
        return _denies(said)
    return said.positive or said.ended or said.changed


def _denies(statement: Statement) -> bool:
    return not statement.positive or statement.ended or statement.retracts


def _missing(fact: str, text: str) -> float:
    words, there = analyze(fact), set(analyze(text))
    return sum(word not in there for word in words) / (len(words) or 1)
