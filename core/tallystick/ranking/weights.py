"""Weights of the signals of recall, as settings name them."""

from __future__ import annotations

from pydantic import Field

from tallystick.records import Record


class RecallWeights(Record):
    """The weight of each signal in a memory's score. A weight of 0 leaves its signal out.

    `text`, `vector`, `words` and `session` multiply standardised values (distance from the
    candidates' mean in standard deviations); `neighbours` is a share of a neighbour's score; the
    others are added in full where the signal is 1.
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
    content: float = Field(default=0.0, allow_inf_nan=False)
    """The same of those words that are no stop words: what the confidence is made of."""
    neighbours: float = Field(default=0.3, allow_inf_nan=False)
    """Share of its score that a turn gives to the turns beside it; a half of that two places away.
    """
    session: float = Field(default=0.5, allow_inf_nan=False)
    """Best score in the conversation that the turn belongs to."""
    date: float = Field(default=5.0, allow_inf_nan=False)
    """The memory is of a date that the query names."""
    speaker: float = Field(default=3.0, allow_inf_nan=False)
    """The one speaker named in the query said it."""
    long_answers: float = Field(default=-4.0, allow_inf_nan=False)
    """An assistant who answers at length repeats what the turn before says."""
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

    def of(self, signal: str) -> float:
        """Return the weight of a signal by its name; that of an extension without one counts in
        full.
        """
        weight: float = getattr(self, signal, 1.0)
        return weight

    def by_itself(self) -> RecallWeights:
        """Return these weights for the memory's own text only, without its neighbours."""
        return self.replace(neighbours=0.0, session=0.0)

    def for_unread(self, share: float) -> RecallWeights:
        """Return these weights for a query of which the embedder cannot read a share."""
        if not share:
            return self
        return self.replace(
            text=(1 - share) * self.text + share * self.foreign_text,
            vector=(1 - share) * self.vector + share * self.foreign_vector,
        )
