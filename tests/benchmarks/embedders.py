"""Embedders that the evaluations measure beside the default one: `--embedders`, by the names that
the setting `embedder` takes.
"""

from __future__ import annotations

import argparse
import time

from tallystick.embedding import GuardedEmbedder, StaticEmbedder, named_embedder
from tallystick.errors import EmbeddingError, TallystickError
from tallystick.ports import Embedder

_IF_HERE = ("minilm",)
"""Those that are measured without being named, where they are on this machine."""
_TIMED = 64
_TEXT = "On Thursday number {} of the herons came back to the old mill, and nobody else saw it."


def add_embedders(parser: argparse.ArgumentParser) -> None:
    """Add the option that names embedders."""
    parser.add_argument(
        "--embedders",
        help="names with commas between them, such as model2vec:FOLDER; by default minilm if it is "
        "on this machine",
    )


def chosen_embedders(names: str | None) -> dict[str, Embedder]:
    """Return the embedders of an option by name, and say of each what it costs here. Each keeps
    the vectors of what it was given. Raises SystemExit for one that cannot be made.
    """
    made: dict[str, Embedder] = {}
    for name in (names or ",".join(_IF_HERE)).split(","):
        try:
            embedder = GuardedEmbedder(named_embedder(name), cache_size=200_000)
            embedder.embed(["so that it is loaded"])
        except TallystickError as error:
            if names is not None:
                raise SystemExit(f"{name}: {error}") from None
            if not isinstance(error, EmbeddingError):
                raise
            continue
        made[embedder.name] = embedder
    for name, each in {"static": StaticEmbedder(), **made}.items():
        print(f"{name}: {each.dimension} dimensions, {_milliseconds(each):.2f} ms a text")
    return made


def _milliseconds(embedder: Embedder) -> float:
    """Return what a text costs alone, as a question does; the median of many."""
    took = []
    for number in range(_TIMED):
        began = time.perf_counter()
        embedder.embed([_TEXT.format(number)])
        took.append(time.perf_counter() - began)
    return 1_000 * sorted(took)[_TIMED // 2]
