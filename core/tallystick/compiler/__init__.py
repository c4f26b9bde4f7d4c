"""The context compiler: candidates in, CompiledContext out, one decision and one reason for each
candidate.

Pure: it reads nothing but the request and the token counter it is handed.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
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
    from tallystick.compiler.outlines import FRAMED, Outline, outline, prompt_text
    from tallystick.compiler.policy import approvals, receipts_wanted, withholding_rules
else:
    __getattr__ = late_names(
        __name__,
        {
            "compile": "PASSES all_candidates compile_context latest_request prepare "
            "searchable_texts visible_items",
            "diff": "diff_compiled prefix_reuse",
            "outlines": "FRAMED Outline outline prompt_text",
            "policy": "approvals receipts_wanted withholding_rules",
        },
    )

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
