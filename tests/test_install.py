"""An installation needs no compiler on any platform that is supported, and what the first pages
tell a reader to type exists.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.errors import MissingExtra

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(
    not (ROOT / "core").is_dir(), reason="the source is out of reach here"
)
OLDEST, NEWEST = "3.11", "3.14"
TARGETS = [
    ("x86_64-manylinux_2_28", OLDEST),
    ("x86_64-manylinux_2_28", NEWEST),
    ("aarch64-manylinux_2_28", OLDEST),
    ("aarch64-manylinux_2_28", NEWEST),
    ("aarch64-apple-darwin", OLDEST),
    ("aarch64-apple-darwin", NEWEST),
    ("x86_64-apple-darwin", OLDEST),
    # ONNX Runtime, which Chroma brings, has no wheel for Intel Macs from 3.14 on.
    ("x86_64-apple-darwin", "3.13"),
    ("x86_64-pc-windows-msvc", OLDEST),
    ("x86_64-pc-windows-msvc", NEWEST),
]


@pytest.fixture(scope="module")
def uv() -> str:
    """The command of uv; a test is skipped where there is none, or no index is reached."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which(os.environ.get("UV", "uv"))
    if not found:
        pytest.skip("uv is not on this machine")
    return found


def _resolve(uv: str, platform: str, python: str, *options: str) -> tuple[int, str]:
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--only-binary", ":all:"]
    command += ["--python-platform", platform, "--python-version", python]
    done = subprocess.run(
        [*command, *options, str(ROOT / "pyproject.toml")],
        capture_output=True,
        text=True,
        timeout=240,
        # What is found for a Mac depends on the oldest system that is supported.
        env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"},
        check=False,
    )
    is_answer = done.returncode == 0 or "No solution found" in done.stderr
    if not is_answer:
        pytest.skip(f"the index is not reachable: {done.stderr[-200:]}")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "python"), TARGETS)
def test_every_supported_platform_installs_from_wheels_alone(
    uv: str, platform: str, python: str
) -> None:
    code, said = _resolve(uv, platform, python)
    assert code == 0, said
    has_table = re.search(r"^wordllama==", said, re.MULTILINE) is not None
    assert has_table == (platform.startswith("x86_64") and python != NEWEST)


@pytest.mark.slow
def test_musl_is_not_supported_as_the_pages_say(uv: str) -> None:
    code, said = _resolve(uv, "x86_64-unknown-linux-musl", OLDEST)
    assert (code, "chromadb" in said) == (1, True)
    assert "musl is not supported" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_pages_install_from_what_a_reader_has() -> None:
    """Nothing is published: an install by name would fail, and by a stranger's name do worse."""
    typed = {
        page: re.findall(r"pip install [^`\n#]*tallystick[^`\n#]*|pip install -e [^`\n#]*", text)
        for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
        if "pip install" in (text := page.read_text(encoding="utf-8"))
    }

    assert len(typed) > 10
    for page, lines in typed.items():
        for line in lines:
            assert re.match(r"pip install (-e '\.\[|\"\$\(echo dist/tallystick-)", line), page


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (
            '{"url": "file:///src/t", "dir_info": {"editable": true}}',
            "pip install -e '/src/t[mcp]'",
        ),
        ('{"url": "file:///d/t.whl", "archive_info": {}}', "pip install '/d/t.whl[mcp]'"),
        (None, "pip install 'tallystick[mcp]'"),
    ],
)
def test_an_error_names_the_line_that_adds_an_extra_to_this_environment(
    origin: str | None, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tallystick-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: tallystick\nVersion: 1\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert str(MissingExtra("mcp", "mcp")) == f"mcp is not installed. Run: {line}"
