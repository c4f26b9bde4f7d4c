"""The dashboard: pages that show what an agent knew and why, served beside the routes.

A page is made on the server from the verbs of a bound tally and the table of operations, as its
caller may see them. It works without JavaScript and asks no other origin for anything. A page that
is read changes nothing; a form shows what it would do first, and then does it with the token of
that preview.
"""

from tallystick.errors import require

require("jinja2", extra="server")

from tallystick_server.dashboard.application import dashboard_app  # noqa: E402
from tallystick_server.dashboard.entrance import Entrance  # noqa: E402
from tallystick_server.dashboard.warming import make_ready_in_background  # noqa: E402

__all__ = ["Entrance", "dashboard_app", "make_ready_in_background"]
