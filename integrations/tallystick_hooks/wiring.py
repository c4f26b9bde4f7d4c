"""Hooks of one tally in one harness: the lines of their commands, and the files that have them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tallystick.tally import BoundTally
from tallystick_hooks.clients import (
    Change,
    ClientScope,
    change_hooks,
    change_plugin,
    harness_of,
    written_at,
)
from tallystick_hooks.starting import place_for

Form = Literal["hooks", "plugin"]


@dataclass(frozen=True)
class Wiring:
    """How the hooks of a harness are started."""

    client: str
    place: ClientScope
    start: Sequence[str]
    """The words that start `tally`."""
    words: Sequence[str]
    """Options and their values, but for those that name a file."""
    files: Mapping[str, str | None]
    """The files, and the tally, by their options."""

    @property
    def form(self) -> Form:
        """The form that hooks have in this harness by default."""
        return "plugin" if harness_of(self.client).hooks is None else "hooks"

    def put_in(self, form: Form) -> list[Change]:
        """Return the changes that put the hooks in. Raises InvalidInput, SettingsError."""
        return self._changes(form, remove=False)

    def take_out(self, form: Form) -> list[Change]:
        """Return the changes that take the hooks out: none where the harness has no such form.
        Raises SettingsError.
        """
        harness = harness_of(self.client)
        if form == "hooks":
            return [] if harness.hooks is None else self._changes(form, remove=True)
        if harness.plugin is None or (self.place == "project" and not harness.plugin.project):
            return []
        return self._changes(form, remove=True)

    def is_used(self, form: Form, owner: BoundTally) -> bool:
        """Return True if a session told of itself through this form since it was written."""
        from tallystick_hooks.handling import has_told

        boundary = dict(pairwise(self.words)).get("--boundary")
        bound = owner if boundary is None else owner.tally.bind(owner.actor, boundary)
        since = written_at(self.take_out(form))
        return has_told(bound, f"{self.place}-{form}", since=since)

    def _changes(self, form: Form, *, remove: bool) -> list[Change]:
        def line(event: str) -> str:
            return self._line(form, event)

        if form == "hooks":
            return [change_hooks(self.place, line, client=self.client, remove=remove)]
        placed = {
            option: place_for(file, self.place) for option, file in self.files.items() if file
        }
        return change_plugin(
            self.place,
            self.client,
            line,
            self.start,
            [*self._words(form), *(part for pair in placed.items() for part in pair)],
            closed=self.files["--rules"] is not None,
            remove=remove,
        )

    def _words(self, form: Form) -> list[str]:
        return [*self.words, "--via", f"{self.place}-{form}"]

    def _line(self, form: Form, event: str) -> str:
        """Return the line of the shell for an event."""
        hooks = harness_of(self.client).hooks
        root, format = ("", "") if hooks is None else (hooks.root, hooks.format)
        fixed = [*self.start, "hook", event, "--format", format, *self._words(form)]
        return shlex.join(fixed) + "".join(
            f" {option} {self._in_shell(file, root)}" for option, file in self.files.items() if file
        )

    def _in_shell(self, file: str, root: str) -> str:
        """Return a place for the line of a hook, whose working folder follows the agent's."""
        written = shlex.quote(place_for(file, self.place))
        is_below = self.place == "project" and "://" not in file
        return f"{root}/{written}" if is_below else written


def other_form(form: Form) -> Form:
    """Return the form that is not this one."""
    return "hooks" if form == "plugin" else "plugin"
