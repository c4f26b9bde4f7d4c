"""HTML on a tally: what records look like in a notebook, and a receipt as one page to send."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick_html.page import receipt_page, says_its_bundle
    from tallystick_html.representations import RENDERERS
else:
    __getattr__ = late_names(
        __name__, {"page": "receipt_page says_its_bundle", "representations": "RENDERERS"}
    )

__all__ = ["RENDERERS", "receipt_page", "says_its_bundle"]
