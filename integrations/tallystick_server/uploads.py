"""Uploads: a form with a file, as browsers and `curl -F` send it, as the fields of a document."""

from __future__ import annotations

import base64
import json
from email.message import Message
from email.parser import HeaderParser
from email.policy import HTTP

from tallystick.errors import InvalidInput

FORM = "multipart/form-data"
_MOST_PARTS = 20
_LONGEST_HEAD = 4_000
"""Bytes that say what a part is."""


def read_form(content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a form, and of its file the arguments of `add_document`: `data`, `name`
    and `media_type`; none where nothing was chosen. Raises InvalidInput.
    """
    mark = content[: max(0, content.find(b"\r\n"))]
    if not mark.startswith(b"--") or len(mark) > 100:
        raise InvalidInput("The form is malformed: it begins with no boundary.")
    first, *parts = (b"\r\n" + content).split(b"\r\n" + mark, _MOST_PARTS + 1)
    if first or not parts or not parts.pop().startswith(b"--"):
        raise InvalidInput(f"The form is malformed, or has more than {_MOST_PARTS} parts.")
    fields: dict[str, str] = {}
    file: dict[str, str] = {}
    for part in parts:
        head, _, body = part.partition(b"\r\n\r\n")
        said = _head(head)
        name = said.get_param("name", header="content-disposition")
        file_name = said.get_filename()
        if not isinstance(name, str) or name in fields or (file_name is not None and file):
            raise InvalidInput("The form is malformed: a part without a name, or one twice.")
        if file_name is None:
            fields[name] = _text(body)
        elif file_name or body:
            kind = said.get_content_type() if said["content-type"] else ""
            file = {"data": base64.b64encode(body).decode("ascii"), "name": file_name}
            # Of what a browser does not know the name says more.
            if kind not in ("", "application/octet-stream", "text/plain"):
                file["media_type"] = kind
    return fields, file


def body_of_form(content: bytes) -> bytes:
    """Return a form as the body of JSON that says the same; its other fields are arguments. Raises
    InvalidInput.
    """
    fields, file = read_form(content)
    return json.dumps({**file, **fields}).encode("ascii")


def _head(head: bytes) -> Message:
    if len(head) > _LONGEST_HEAD:
        raise InvalidInput("The form is malformed: a part without an end of its head.")
    return HeaderParser(policy=HTTP.clone(utf8=True)).parsestr(_text(head).lstrip("\r\n"))


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput("The form is malformed: its fields are no UTF-8.") from error
