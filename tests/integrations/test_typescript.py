"""The TypeScript of docs/other-languages.md compiles in strict mode, by types that are generated
from the description, and runs against a server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integrations.served import served

from tallystick_server import openapi

PAGE = Path(__file__).parent.parent.parent / "docs" / "other-languages.md"
_PACKAGES = ("openapi-typescript@7", "openapi-fetch@0.17", "typescript@5", "@types/node@22")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not there"),
    pytest.mark.skipif(not PAGE.exists(), reason="the documentation is out of reach here"),
]


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=250,
        check=False,
    )


def test_the_typescript_of_the_page_compiles_and_prints_what_stands_below(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    [code] = re.findall(r"^```typescript\n(.*?)^```$", page, re.M | re.S)
    [printed] = re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    if run(tmp_path, "npm", "install", "--no-audit", "--no-fund", *_PACKAGES).returncode:
        pytest.skip("npm reaches no packages")
    (tmp_path / "tally.json").write_text(json.dumps(openapi()))
    (tmp_path / "client.ts").write_text(code)

    bin = tmp_path / "node_modules" / ".bin"
    made = run(tmp_path, str(bin / "openapi-typescript"), "tally.json", "-o", "tally.ts")
    assert made.returncode == 0, made.stderr
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "node")
    compiled = run(tmp_path, str(bin / "tsc"), *options, "client.ts")
    assert compiled.returncode == 0, compiled.stdout
    with served(tmp_path) as there:
        ran = run(tmp_path, "node", "client.js", TALLY_URL=there.tcp, TALLY_TOKEN=there.token())
    assert (ran.returncode, ran.stdout) == (0, printed), ran.stderr
