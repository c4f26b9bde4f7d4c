"""Learning: an extension by which a model, or the calling agent, says what holds from now on.

`Learning(bound)` reflects on memories. Where the setting `learning` is on, jobs read conversations.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_learning.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_learning.learner import ModelLearner
    from tallystick_learning.learning import AsyncLearning, Learning, LearningVerbs
else:
    __getattr__ = late_names(
        __name__,
        {"learner": "ModelLearner", "learning": "AsyncLearning Learning LearningVerbs"},
    )

__all__ = [
    "EXTENSION",
    "AsyncLearning",
    "Learning",
    "LearningVerbs",
    "ModelLearner",
]
