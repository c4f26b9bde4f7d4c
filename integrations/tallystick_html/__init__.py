"""HTML on a tally: what records look like in a notebook, and a receipt as one page to send."""

from tallystick_html.first_lines import CAPTURE, first_lines, opening_lines
from tallystick_html.page import receipt_page, says_its_bundle
from tallystick_html.representations import RENDERERS

__all__ = [
    "CAPTURE",
    "RENDERERS",
    "first_lines",
    "opening_lines",
    "receipt_page",
    "says_its_bundle",
]
