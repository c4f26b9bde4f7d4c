"""The runtimes that keep the contracts, as parameters of a test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from .base import Runtime
from .langchain import LangChain
from .llama_index import TOOLS_WAIT, LlamaIndex
from .openai_agents import OpenAIAgents
from .pydantic_ai import PydanticAI

_MARKS = {
    # LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
    "llama_index": [
        pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
    ]
}
_NONE: Mapping[str, str] = MappingProxyType({})
_PLAIN: list[Runtime] = [LangChain(), PydanticAI(), LlamaIndex(), OpenAIAgents()]
_WAYS: list[Runtime] = [
    *(LangChain(way) for way in LangChain.ways),
    *(PydanticAI(way) for way in PydanticAI.ways),
    *(LlamaIndex(way) for way in LlamaIndex.ways),
    *(OpenAIAgents(way) for way in OpenAIAgents.ways),
]
_WATCHED: list[Runtime] = [LangChain("invoke", watched=True), LangChain("ainvoke", watched=True)]


def _parameters(
    runtimes: list[Runtime], waits: bool, fails: Mapping[str, str]
) -> pytest.MarkDecorator:
    parameters = []
    for each in runtimes:
        marks = list(_MARKS.get(each.name, ()))
        if waits and each.name == "llama_index":
            why = "this release of LlamaIndex does not let tools of agents wait"
            marks.append(pytest.mark.skipif(not TOOLS_WAIT, reason=why))
        if each.name in fails:
            marks.append(pytest.mark.xfail(strict=True, reason=fails[each.name]))
        parameters.append(pytest.param(each, id=repr(each), marks=marks))
    return pytest.mark.parametrize("runtime", parameters)


def in_runtimes(
    *names: str, waits: bool = False, fails: Mapping[str, str] = _NONE
) -> pytest.MarkDecorator:
    """Run a test in these runtimes, or in each.

    `waits` is for a test whose tools wait for a person, `fails` names the runtimes that do not hold
    the fact yet, and why.
    """
    return _parameters([each for each in _PLAIN if not names or each.name in names], waits, fails)


def in_ways(
    *ways: str, watched: bool = False, waits: bool = False, fails: Mapping[str, str] = _NONE
) -> pytest.MarkDecorator:
    """Run a test in these ways to call an agent, or in each; the rest is as in `in_runtimes`."""
    runtimes = [each for each in _WAYS if not ways or each.way in ways]
    return _parameters([*runtimes, *(_WATCHED if watched else ())], waits, fails)
