"""Weights of recall: how much each signal counts, in one frozen record."""

from __future__ import annotations

from pydantic import Field

from tallystick.records import Record


class RecallWeights(Record):
    """The weight of each signal in a memory's score. A weight of 0 leaves its signal out.

    `text`, `vector`, `words` and `session` multiply standardised values (distance from the
    candidates' mean in standard deviations); `near`, `far` and `answers` are shares of a
    neighbour's score; the others are added in full where the signal is 1.
    """

    text: float = Field(default=0.2, allow_inf_nan=False)
    """Words that query and memory share: BM25."""
    vector: float = Field(default=0.4, allow_inf_nan=False)
    """Nearness of the whole meaning: cosine."""
    foreign_text: float = Field(default=0.6, allow_inf_nan=False)
    """Instead of `text`, for the share of the query's words that the embedder cannot read."""
    foreign_vector: float = Field(default=0.2, allow_inf_nan=False)
    """Instead of `vector`, for the same share."""
    words: float = Field(default=0.6, allow_inf_nan=False)
    """Nearness of single words: for each word of the query the likest word of the memory."""
    near: float = Field(default=0.3, allow_inf_nan=False)
    """Share of its score that a turn gives to the turn before and to the turn after it."""
    far: float = Field(default=0.15, allow_inf_nan=False)
    """Share of its score that a turn gives to the turns two places away."""
    answers: float = Field(default=0.5, allow_inf_nan=False)
    """Share of its score that a question gives, on top, to the turn after it."""
    session: float = Field(default=0.5, allow_inf_nan=False)
    """Best score in the conversation that the turn belongs to."""
    question: float = Field(default=-2.0, allow_inf_nan=False)
    """The turn asks rather than tells: the share of it that asks. Nothing in a conversation whose
    assistant answers at length: its user tells while asking.
    """
    time_words: float = Field(default=1.5, allow_inf_nan=False)
    """The query asks when, and the memory contains a word of time."""
    date: float = Field(default=4.0, allow_inf_nan=False)
    """The memory is of a date that the query names."""
    asked_kind: float = Field(default=2.5, allow_inf_nan=False)
    """The query asks where or who, and the memory has a word that is like a place or a person."""
    introduction: float = Field(default=4.0, allow_inf_nan=False)
    """The query asks for the name, the age, the work or the home of the asker or of the one speaker
    named, and there the same says it of himself.
    """
    speaker: float = Field(default=3.0, allow_inf_nan=False)
    """The one speaker named in the query said it."""
    role: float = Field(default=-0.3, allow_inf_nan=False)
    """An assistant said it, and the query does not ask what the assistant said."""
    long_answers: float = Field(default=-3.0, allow_inf_nan=False)
    """Instead of `role`, in a conversation whose assistant answers at length."""
    sentence: float = Field(default=1.0, allow_inf_nan=False)
    """It is such an answer, and one of its sentences has more of the query than anything that
    others said: how far it then lies below the best of theirs for the best such candidate, half of
    it for the second, a third for the third, …; less where the sentence is hardly better.
    """
    standing: float = Field(default=2.0, allow_inf_nan=False)
    """It asks for something from now on ("always …"), no assistant said it, and the query asks for
    help: 1 for the best such candidate, 1/2 for the second, 1/3 for the third, …
    """
    preference: float = Field(default=1.0, allow_inf_nan=False)
    """It states a preference ("I prefer …"), under the same conditions and in the same way."""
    vector_only: float = Field(default=-1.0, allow_inf_nan=False)
    """Filters leave less than a tenth of the scope, and only the vector speaks for it."""
    freshness: float = Field(default=0.0, allow_inf_nan=False)
    """It is recent: 1 now, half of that for each 30 days."""
    access: float = Field(default=0.0, allow_inf_nan=False)
    """It was recalled often: the logarithm of 1 and how often, to base 10."""
    task: float = Field(default=0.0, allow_inf_nan=False)
    """It was written in the run under way."""
    project: float = Field(default=0.0, allow_inf_nan=False)
    """It belongs to the project that the caller is bound to; the other scopes asked may be others.
    """
    source: float = Field(default=0.0, allow_inf_nan=False)
    """The query names the source it was drawn from: its title, its address or its file."""

    mentions: float = Field(default=0.5, allow_inf_nan=False)
    """It mentions an entity that the query names, where the graph is on: 1 for a rare one."""
    related: float = Field(default=4.0, allow_inf_nan=False)
    """It mentions an entity that texts relate to one of the query, where the graph is on."""

    def by_itself(self) -> RecallWeights:
        """Return these weights for the memory's own text alone, without its neighbours."""
        return self.replace(near=0.0, far=0.0, answers=0.0, session=0.0)
