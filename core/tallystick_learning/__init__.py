"""Learning: an extension by which models read what is remembered and propose what it states.

`Learning(bound)` reflects on memories. Where the setting `learning` is on, jobs read new ones.
"""

from tallystick_learning.extension import EXTENSION
from tallystick_learning.learning import AsyncLearning, Learning, LearningVerbs
from tallystick_learning.models import ModelDecider, ModelExtractor

__all__ = [
    "EXTENSION",
    "AsyncLearning",
    "Learning",
    "LearningVerbs",
    "ModelDecider",
    "ModelExtractor",
]
