"""A process that is one command loads without a collection and without plugins of pydantic, and of
the rooms what it uses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CODE = """
import gc
from tallystick.loading import loading
with loading():
    print(gc.isenabled())
    from tallystick.tally import Tally
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
gc.disable()
with loading():
    pass
print(gc.isenabled())
"""


@pytest.mark.parametrize(("variable", "loaded"), [(None, False), ("", True), ("other", True)])
def test_plugins_wait_outside_unless_the_environment_says_which(
    tmp_path: Path, variable: str | None, loaded: bool
) -> None:
    (tmp_path / "plugin_of_a_test.py").write_text(
        "print('a plugin')\ndef new_schema_validator(*_, **__):\n    return None, None, None\n"
    )
    about = tmp_path / "plugin_of_a_test-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-a-test\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[pydantic]\nspy = plugin_of_a_test\n")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    if variable is not None:
        environment["PYDANTIC_DISABLE_PLUGINS"] = variable

    done = subprocess.run(
        [sys.executable, "-c", _CODE], capture_output=True, text=True, env=environment, check=True
    )

    assert [line for line in done.stdout.splitlines() if line == "a plugin"] == (
        ["a plugin"] if loaded else []
    )
    assert [line for line in done.stdout.splitlines() if line != "a plugin"] == [
        "False",
        "True True",
        "False",
    ]


_WAITS = """
import sys
from tallystick.loading import Late, late_names
text = Late("tallystick.records.escaping:visible")
print("tallystick.records" in sys.modules)
print(text("a"), text.__name__, "tallystick.records.escaping" in sys.modules)
__getattr__ = late_names("tallystick.records", {"identity": "Actor Scope", "policy": "PolicyRule"})
print(__getattr__("Scope").__name__)
try:
    __getattr__("Nothing")
except AttributeError as error:
    print(error)
"""


def test_a_late_function_and_a_late_name_load_their_file_when_they_are_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WAITS], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [
        "False",
        "a visible True",
        "Scope",
        "module 'tallystick.records' has no attribute 'Nothing'",
    ]


_COMPILES = """
import re
from tallystick.loading import late_pattern
compiled, compile = [], re.compile
re.compile = lambda pattern, flags=0: compiled.append(pattern) or compile(pattern, flags)
word = late_pattern("[a-z]+", re.IGNORECASE)
print(word.pattern, compiled)
print(word.sub("-", "a B c"), word.fullmatch("Heron")[0], set(compiled))
"""


def test_a_late_pattern_is_compiled_when_a_text_is_first_read_by_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMPILES], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["[a-z]+ []", "- - - Heron {'[a-z]+'}"]


_LISTS = """
import sys
import tallystick.records
loaded = lambda: sorted(name for name in sys.modules if name.startswith("tallystick.records."))
print(loaded())
tallystick.records.Scope
print("tallystick.records.identity" in loaded(), "tallystick.records.synthesis" in loaded())
"""


def test_records_load_with_the_first_name_of_their_file() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LISTS], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["[]", "True False"]
