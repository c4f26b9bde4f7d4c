"""A counter that counts words, and a compile with everything but the items at simple values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tallystick.compiler import compile_context
from tallystick.ports import TokenCounter
from tallystick.records import CompilationRequest, CompiledContext, ContextItem, TargetProfile

Compile = Callable[..., CompiledContext]


class Words:
    """Exactly one token per word."""

    method = "words"
    exact = True

    def count(self, text: str) -> int:
        return len(text.split())


@pytest.fixture(scope="session")
def words() -> TokenCounter:
    return Words()


@pytest.fixture(scope="session")
def compile_items() -> Compile:
    """Compile items by keyword, with no overhead unless a target is given."""

    def run(items: Iterable[ContextItem] = (), **request: Any) -> CompiledContext:
        fields: dict[str, Any] = {
            "request_id": "r",
            "token_budget": 1000,
            "as_of": 1_000_000_000_000,
            "target": TargetProfile(per_item=0, per_tool=0, per_request=0),
            **request,
        }
        return compile_context(
            CompilationRequest(context_items=tuple(items), **fields), counter=Words()
        )

    return run
