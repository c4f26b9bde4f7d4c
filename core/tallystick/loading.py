"""Loading of the core by a process that is one command: most of what one takes is its start.

Rooms that few calls enter are loaded by the first that does.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import Any, cast


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


class Late:
    """A function or a class, `package.module:name`, of a module that is loaded when it is first
    called or asked for an attribute.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _loaded(self) -> Any:
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._loaded(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, name)


class _LatePattern:
    """A regular expression that is compiled when a member of it is first asked for."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._asked = pattern, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self.pattern, self._asked), name)
        setattr(self, name, value)
        return value


def late_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression, of which the methods may be used: a process that never reads a
    text compiles none.
    """
    return cast("re.Pattern[str]", _LatePattern(pattern, flags))


def late_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names, by the file that has them, are loaded when
    they are first asked for. No name may be that of a file of the package.
    """
    files = {name: file for file, listed in names.items() for name in listed.split()}

    def __getattr__(name: str) -> Any:
        if name not in files:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{files[name]}"), name)

    return __getattr__
