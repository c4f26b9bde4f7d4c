"""Conversations: what the turns of one say of its kind, from the lengths of its turns.

A user tells what matters in a line; an assistant answers with a page, which repeats the line and
has a word for every question. Where answers are that long, what the user said is what is looked for
later. Between people who happen to be called user and assistant, both tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.corpus import Corpus

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_ASSISTANTS = frozenset({"assistant", "ai", "agent", "bot", "chatbot", "model"})
"""The names by which protocols call the speaker that is a model."""
_LONG = 3.0
"""How many times the words of the others' median turn those of the assistants' must be. Chats with
an assistant measured 6 to 20, friends at most 1.4.
"""
_READ = 400
"""Turns of one conversation that are counted: its latest."""


def is_assistant(speaker: str | None) -> bool:
    """Return True if the speaker is an assistant by role rather than a person by name."""
    return speaker is not None and speaker.strip().lower() in _ASSISTANTS


def answered_at_length(corpus: Corpus, rows: Ints) -> Flags:
    """Return, for each row, True if it is a turn of a conversation whose assistants answer at
    length: their median turn has more than three times the words of the others'.

    What is found of a conversation stands until one of its turns changes.
    """
    import numpy as np

    vocabulary = corpus.vocabulary
    # A list first: another thread may add a speaker meanwhile.
    assistants = [
        number for name, number in list(vocabulary.speakers.items()) if is_assistant(name)
    ]
    conversation = corpus.column("conversation")[rows]
    if not assistants:
        return np.zeros(len(rows), dtype=bool)
    numbers, place = np.unique(conversation, return_inverse=True)
    new = [
        number for number in numbers.tolist() if number >= 0 and number not in corpus.long_answers
    ]
    if new:
        corpus.long_answers.update(_compare(corpus, np.array(new, dtype=np.int64), assistants))
    long = [number >= 0 and corpus.long_answers[number] for number in numbers.tolist()]
    return np.array(long, dtype=bool)[place]


def _compare(corpus: Corpus, conversations: Ints, assistants: list[int]) -> dict[int, bool]:
    import numpy as np

    turns = corpus.turns
    ordered = corpus.column("conversation")[turns]
    end = np.searchsorted(ordered, conversations, side="right")
    start = np.maximum(np.searchsorted(ordered, conversations), end - _READ)
    counts = end - start
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = turns[np.repeat(start, counts) + within]
    words = corpus.words_in(rows)
    # Each conversation in two groups: what others say, and what assistants say.
    group = 2 * np.repeat(np.arange(len(conversations)), counts)
    group += np.isin(corpus.column("speaker")[rows], assistants)
    order = np.lexsort((words, group))
    words, group = words[order], group[order]
    groups = np.arange(2 * len(conversations))
    first, last = np.searchsorted(group, groups), np.searchsorted(group, groups, side="right")
    # Of an even number of turns the lower of the two in the middle; of none, nothing.
    middle = np.minimum((first + last - 1) // 2, len(words) - 1)
    median = np.where(last > first, words[middle], 0.0).reshape(-1, 2)
    both = (last > first).reshape(-1, 2).all(axis=1)
    long = both & (median[:, 1] > _LONG * median[:, 0])
    return dict(zip(conversations.tolist(), long.tolist(), strict=True))
