"""Media types by the end of a name: the same on every machine, whatever its system registers."""

from __future__ import annotations

import mimetypes

from tallystick.formats import media_type_of

_TYPES = mimetypes.MimeTypes(filenames=())
for _suffix, _media_type in (
    (".md", "text/markdown"),
    (".markdown", "text/markdown"),
    (".rst", "text/x-rst"),
    (".adoc", "text/asciidoc"),
    (".toml", "application/toml"),
    (".yaml", "application/yaml"),
    (".yml", "application/yaml"),
    (".ts", "text/x-typescript"),
):
    _TYPES.add_type(_media_type, _suffix)


def media_type(name: str, body: bytes) -> str:
    """Return what bytes show themselves to be, else what their name says, else text or bytes."""
    shown = media_type_of(body)
    named, encoding = _TYPES.guess_type(name, strict=False)
    if shown is not None:
        return shown
    return "text/plain" if named is None or encoding else named
