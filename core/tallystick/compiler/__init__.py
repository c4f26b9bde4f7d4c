"""The context compiler: candidates in, CompiledContext out, one decision and one reason for each
candidate.

Pure: it reads nothing but the request and the token counter it is handed.
"""

from tallystick.compiler.approvals import approvals, receipts_wanted, withholding_rules
from tallystick.compiler.candidates import (
    all_candidates,
    latest_request,
    searchable_texts,
    visible_items,
)
from tallystick.compiler.compile import PASSES, compile_context
from tallystick.compiler.diff import diff_compiled
from tallystick.compiler.outline import FRAMED, Outline, outline, prompt_text
from tallystick.compiler.prefix import prefix_reuse

__all__ = [
    "FRAMED",
    "Outline",
    "PASSES",
    "all_candidates",
    "approvals",
    "compile_context",
    "diff_compiled",
    "latest_request",
    "outline",
    "prefix_reuse",
    "prompt_text",
    "receipts_wanted",
    "searchable_texts",
    "visible_items",
    "withholding_rules",
]
