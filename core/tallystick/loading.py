"""Loading of the core by a process that is one command: most of what one takes is its start."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Load quickly what is imported inside: only a process of our own may do this.

    Modules stay and leave hardly any garbage behind, so the collector waits, and never looks at
    them later. Plugins of pydantic are left out, unless `PYDANTIC_DISABLE_PLUGINS` is set: looking
    for them reads the files of every installed package, and one of them may send what it sees.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()
