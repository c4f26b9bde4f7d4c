"""Names in texts, for tests of the graph: given with a memory, or found by a scripted model."""

from __future__ import annotations

from tallystick.records import ExtractedEntity, ExtractedRelation, Extraction, NewMemory
from tallystick.testing import ScriptedLearner
from tallystick_graph.names import KnownNames

NAMES = KnownNames(
    (
        *("Anna Schmidt", "Anna Berg", "Anna Becker", "Anna", "Bob Miller", "Clara Jones"),
        *("Otto Lang", "Otto Visser", "Viktor Krause", "Zebedee Quill", "Zebedee Quillfeather"),
        *("Rosa Moreau", "Hugo Costa", "Acme Labs", "Tallystick GmbH", "Studio Nine"),
        *("Seeadler", "Berlin", "Oslo", "Rome", "Lisbon", "Hamburg", "Vienna", "Delft"),
        *("Utrecht", "Leiden"),
    )
)
PEOPLE = frozenset(
    {
        *("Anna Schmidt", "Anna Berg", "Anna Becker", "Anna", "Bob Miller", "Clara Jones"),
        *("Otto Lang", "Otto Visser", "Viktor Krause", "Rosa Moreau", "Hugo Costa"),
    }
)
_RELATIONS = {
    "works at": "works_at",
    "works for": "works_at",
    "reports to": "reports_to",
    "lives in": "lives_in",
}


def named(text: str) -> NewMemory:
    """Return a text to remember, with the names that it has."""
    return NewMemory(content=text, entities=tuple(NAMES.find_in(text)))


def read_names(text: str) -> Extraction:
    """Return the names of a text, and how the two around a verb are related."""
    names = NAMES.find_in(text)
    relations = []
    for verb, relation in _RELATIONS.items():
        before, between, after = text.partition(f" {verb} ")
        if between and (sources := NAMES.find_in(before)) and (targets := NAMES.find_in(after)):
            relations.append(
                ExtractedRelation(source=sources[-1], relation=relation, target=targets[0])
            )
    return Extraction(
        entities=tuple(ExtractedEntity(name=name, kind=_kind(name)) for name in names),
        relations=tuple(relations),
    )


def _kind(name: str) -> str:
    return "person" if name in PEOPLE else "name"


def namer() -> ScriptedLearner:
    """Return a model that finds names and relations, and no facts."""
    return ScriptedLearner(read_names)
