"""The graph: names that stand for other entities."""

from tallystick.records._base import Record


class EntityAlias(Record):
    """A name that stands for another entity, and what tells it."""

    alias_id: str
    """The memory of the name: `restore` parts it."""
    alias: str
    entity_id: str
    entity: str
    """The name of the entity that it stands for."""
    reason: str
    """`same_but_for_marks`, `stated_acronym` or `given_name_of_person`; else why somebody did it.
    """
    evidence: tuple[str, ...] = ()
    """The memories whose texts tell it, as far as the actor may read them."""
