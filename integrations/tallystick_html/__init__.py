"""HTML on a tally: what records look like in a notebook, and a receipt as one page to send."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick_html.page import receipt_page, says_its_bundle
    from tallystick_html.pasted_lines import CAPTURE, first_lines, opening_lines
    from tallystick_html.representations import RENDERERS
else:
    __getattr__ = late_names(
        __name__,
        {
            "page": "receipt_page says_its_bundle",
            "pasted_lines": "CAPTURE first_lines opening_lines",
            "representations": "RENDERERS",
        },
    )

__all__ = [
    "CAPTURE",
    "RENDERERS",
    "first_lines",
    "opening_lines",
    "receipt_page",
    "says_its_bundle",
]
