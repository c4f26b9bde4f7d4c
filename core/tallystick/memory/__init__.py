"""Memory: what was said stays as it was said; what was concluded points back to it."""

from tallystick.memory.access_preview import preview_access, preview_member
from tallystick.memory.change import forget, modify, modify_many, recover
from tallystick.memory.context import MemoryContext
from tallystick.memory.contradictions import pairs_among
from tallystick.memory.correct import CorrectionRequest, correct
from tallystick.memory.crossing import cross
from tallystick.memory.dependencies import dependencies
from tallystick.memory.explore import ExploreFilter, explore, warm
from tallystick.memory.history import activity, history, reads
from tallystick.memory.inspect import inspect
from tallystick.memory.items import Item, Items, Put
from tallystick.memory.labels import require_known_labels
from tallystick.memory.links import read_link_changes
from tallystick.memory.matching import ForgetRequest, forget_matching
from tallystick.memory.packs import pack, wake
from tallystick.memory.read import get, list_memories, newest
from tallystick.memory.recall import recall, recall_each
from tallystick.memory.recall_request import RecallRequest
from tallystick.memory.remember import remember
from tallystick.memory.sources import source
from tallystick.memory.working import WorkingMemory
from tallystick.memory.working_set import SessionTurn, working_set

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
    "correct",
    "cross",
    "dependencies",
    "activity",
    "explore",
    "read_link_changes",
    "reads",
    "forget",
    "forget_matching",
    "get",
    "history",
    "inspect",
    "list_memories",
    "modify",
    "modify_many",
    "newest",
    "pairs_among",
    "preview_access",
    "preview_member",
    "recall",
    "recall_each",
    "recover",
    "remember",
    "require_known_labels",
    "source",
    "warm",
    "wake",
    "working_set",
]
