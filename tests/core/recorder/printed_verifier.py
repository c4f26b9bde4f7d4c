"""The verifier that docs/reference/receipts.md prints, as something to call."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference" / "receipts.md"


@functools.cache
def printed_verifier() -> Callable[..., list[str]]:
    """What stands under the page's heading, and the canonical form: `problems_of`."""
    page = PAGE.read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    (form,) = (block for block in blocks if "def canonical(" in block)
    (verifier,) = (block for block in blocks if "def problems_of(" in block)
    code = form + verifier.rpartition("\nassert")[0]
    assert "tallystick " not in code
    assert set(re.findall(r"^(?:import|from) (\w+)", code, re.M)) == {"hashlib", "json", "zipfile"}
    names: dict[str, Any] = {}
    exec(compile(code, "docs/reference/receipts.md", "exec"), names)
    problems_of: Callable[..., list[str]] = names["problems_of"]
    return problems_of
