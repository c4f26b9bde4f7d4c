"""Models: the way to a model that answers with records, for whatever has prompts for one.

An adapter of a runtime adds one thing, a `StructuredModel`. The text is data: it comes behind the
instructions, escaped and labelled, and nothing in an answer is carried out here.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tallystick.errors import ExtractionError
from tallystick.jobs.outbound import note_answer, note_request
from tallystick.ports import StructuredModel
from tallystick.records import ProviderDeclaration

M = TypeVar("M", bound=BaseModel)

_PROMPT_VERSION = "2"
_TRIES = 2


def declare_prompt(model: StructuredModel) -> ProviderDeclaration:
    """Return what a model says of itself, with the version of our prompts."""
    return model.declaration.model_copy(update={"prompt_version": _PROMPT_VERSION})


def frame_text(text: str) -> str:
    """Return a text between tags that nothing inside of it can close."""
    escaped = text.replace("<", "&lt;").replace(">", "&gt;")
    return f"<text>\n{escaped}\n</text>"


def unescape_text(text: str) -> str:
    """Return words of an answer as the framed text has them."""
    return text.replace("&lt;", "<").replace("&gt;", ">")


def ask_model(
    model: StructuredModel, instructions: str, text: str, schema: type[M]
) -> tuple[M, list[str]]:
    """Return the record that a model answers with, and warnings; it is asked once more where it
    gives none. Raises ExtractionError.
    """
    if not model.declaration.structured_output:
        # It may still write JSON, which is read; prose is a failure, never an empty result.
        instructions += f"\nAnswer with JSON alone, by this schema: {_schema(schema)}"
    warnings: list[str] = []
    for number in range(_TRIES):
        note_request(f"{instructions}\n{text}", again=number > 0)
        answer = model.answer(instructions, text, schema)
        note_answer(answer)
        record = _read(answer.value, schema)
        if record is not None:
            return record, warnings
        warnings.append(f"answer {number + 1} was no record of the kind that was asked for")
    raise ExtractionError(
        f"{model.declaration.name} answered {_TRIES} times with something else than the record "
        f"that was asked for."
    )


def _schema(schema: type[BaseModel]) -> str:
    return json.dumps(schema.model_json_schema(), separators=(",", ":"))


def _read(value: Any, schema: type[M]) -> M | None:
    if isinstance(value, schema):
        return value
    try:
        if isinstance(value, str):
            begin, end = value.find("{"), value.rfind("}")
            return schema.model_validate_json(value[begin : end + 1]) if begin >= 0 else None
        return schema.model_validate(value)
    except ValidationError:
        return None
