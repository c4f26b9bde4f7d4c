"""The first page that a newcomer follows is one script, which runs wherever the package is."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "getting-started.md"


@pytest.mark.smoke
@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is out of reach here")
def test_the_blocks_of_getting_started_are_one_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, in an empty folder, as somebody would paste it; it says how long it
    took.
    """
    page = PAGE.read_text(encoding="utf-8")
    blocks, printed = (
        re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)
        for language in ("python", "text")
    )
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=250,
        check=False,
    )

    took = time.monotonic() - began
    with capsys.disabled():
        sys.stdout.write(f"\ngetting started: {len(blocks)} blocks in {took:.1f} s\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(printed)
