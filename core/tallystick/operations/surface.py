"""Surfaces: the operations that a surface offers, and those that it leaves out, with the reasons.

A surface presents by hand: commands with positionals and prompts, tools with signatures that a
runtime reads. Its offers are described here, and a test compares them with the table: every
operation is offered, or excluded with a reason, and each argument has the table's name, type,
default and help unless the offer gives a reason to differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Offer:
    """The offer of an operation, or of several, under one name."""

    operations: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The operation's argument by the name that the surface gives it."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the surface that the operation does not have, or has differently, with
    reasons.
    """
    absent: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the operation that the surface does not take, each with the reason."""
    note: str = ""
    """A sentence that the surface adds to the description."""
    is_part: bool = False
    """True if the operation is a part of what the command does, which then describes itself."""


@dataclass(frozen=True)
class Surface:
    """The offers of a surface."""

    name: str
    offers: Mapping[str, Offer]
    """By the name of the command or tool."""
    excluded: Mapping[str, str]
    """Operations that it does not offer, each with the reason."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Commands of its own that are no operation, each with the reason."""
    common: Mapping[str, str] = field(default_factory=dict)
    """Arguments that every command of the surface may have, each with what it is for."""
