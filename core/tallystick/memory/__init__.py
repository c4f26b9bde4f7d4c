"""Memory: what was said stays as it was said; what was concluded points back to it."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.memory.access_preview import preview_access, preview_member
    from tallystick.memory.change import forget, modify, recover
    from tallystick.memory.change_many import modify_many
    from tallystick.memory.context import MemoryContext
    from tallystick.memory.contradictions import pairs_among
    from tallystick.memory.correct import CorrectionRequest
    from tallystick.memory.crossing import cross
    from tallystick.memory.explore import ExploreFilter, warm
    from tallystick.memory.history import activity, reads
    from tallystick.memory.items import Item, Items, Put
    from tallystick.memory.labels import require_known_labels
    from tallystick.memory.links import read_link_changes
    from tallystick.memory.matching import ForgetRequest, forget_matching
    from tallystick.memory.packs import pack, wake
    from tallystick.memory.read import get, list_memories, newest
    from tallystick.memory.recall import recall_each
    from tallystick.memory.recall_request import RecallRequest
    from tallystick.memory.sources import source
    from tallystick.memory.working import WorkingMemory
    from tallystick.memory.working_set import SessionTurn
else:
    __getattr__ = late_names(
        __name__,
        {
            "access_preview": "preview_access preview_member",
            "change": "forget modify recover",
            "change_many": "modify_many",
            "context": "MemoryContext",
            "contradictions": "pairs_among",
            "correct": "CorrectionRequest",
            "crossing": "cross",
            "explore": "ExploreFilter warm",
            "history": "activity reads",
            "items": "Item Items Put",
            "labels": "require_known_labels",
            "links": "read_link_changes",
            "matching": "ForgetRequest forget_matching",
            "packs": "pack wake",
            "read": "get list_memories newest",
            "recall": "recall_each",
            "recall_request": "RecallRequest",
            "sources": "source",
            "working": "WorkingMemory",
            "working_set": "SessionTurn",
        },
    )

__all__ = [
    "CorrectionRequest",
    "ExploreFilter",
    "ForgetRequest",
    "Item",
    "Items",
    "MemoryContext",
    "Put",
    "RecallRequest",
    "SessionTurn",
    "WorkingMemory",
    "pack",
    "cross",
    "activity",
    "read_link_changes",
    "reads",
    "forget",
    "forget_matching",
    "get",
    "list_memories",
    "modify",
    "modify_many",
    "newest",
    "pairs_among",
    "preview_access",
    "preview_member",
    "recall_each",
    "recover",
    "require_known_labels",
    "source",
    "warm",
    "wake",
]
