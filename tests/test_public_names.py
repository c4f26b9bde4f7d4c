"""The public names are frozen: a change of one is made on purpose, and the test prints it."""

from __future__ import annotations

import pytest
from tests.public_names import COMMAND, ROOT, STORED, changes, public_lines


@pytest.mark.skipif(not (ROOT / "docs" / "api").is_dir(), reason="the source is out of reach here")
def test_the_public_names_are_those_of_the_release() -> None:
    changed = changes(STORED.read_text(encoding="utf-8").splitlines(), public_lines())

    assert not changed, (
        "The public names changed:\n"
        + "\n".join(changed)
        + f"\nIf that is meant, say it in CHANGELOG.md and run `{COMMAND}`."
    )


def test_a_change_is_printed_as_what_went_and_what_came() -> None:
    before = ["tallystick.a(x: int) -> str", "tallystick.b: int", "tallystick.c: int"]
    after = ["tallystick.a(x: int, *, y: int = 0) -> str", "tallystick.c: int"]

    assert changes(before, after) == [
        "-tallystick.a(x: int) -> str",
        "-tallystick.b: int",
        "+tallystick.a(x: int, *, y: int = 0) -> str",
    ]
