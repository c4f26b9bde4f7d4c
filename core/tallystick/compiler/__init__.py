"""The context compiler: candidates in, CompiledContext out, one decision and one reason for each
candidate.

Pure: it reads nothing but the request and the token counter it is handed.
"""

from tallystick.compiler.compile import (
    PASSES,
    all_candidates,
    compile_context,
    latest_request,
    prepare,
    searchable_texts,
    visible_items,
)
from tallystick.compiler.diff import diff_compiled, prefix_reuse
from tallystick.compiler.outline import FRAMED, Outline, outline, prompt_text
from tallystick.compiler.policy import approvals, receipts_wanted, withholding_rules

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
    "prepare",
    "prefix_reuse",
    "prompt_text",
    "receipts_wanted",
    "searchable_texts",
    "visible_items",
    "withholding_rules",
]
