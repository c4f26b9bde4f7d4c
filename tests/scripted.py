"""A scripted model for tests in which something is concluded, whatever it is."""

from __future__ import annotations

from tallystick.records import ExtractedFact, Extraction
from tallystick.testing import ScriptedLearner


def concluder(kind: str = "decision") -> ScriptedLearner:
    """Return a model that draws each text whole as one fact of a kind; questions give nothing."""

    def read(text: str) -> Extraction:
        if text.endswith("?"):
            return Extraction()
        return Extraction(facts=(ExtractedFact(content=text, kind=kind, confidence=90),))

    return ScriptedLearner(read)
