"""Messages: the record of a mail, whatever was done to it on the way."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.utils import getaddresses, parsedate_to_datetime
from typing import NamedTuple

from tallystick.formats import Unextractable, decode, extract
from tallystick_ingest.contract import (
    LARGEST_ATTACHMENT,
    Attachment,
    Known,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)

LARGEST_MESSAGE = 40_000_000
"""Bytes of a message that is read: with one attachment of the largest size, as it is sent."""
_DEEPEST = 30
"""Parts within parts of a message."""
_MESSAGE_ID = re.compile(r"<([^<>\s]{1,500})>")
_STATUS = {"R": "seen", "A": "replied", "F": "flagged", "D": "trashed", "T": "draft"}


def read_message(
    raw: bytes | None, name: str, folder: str, labels: tuple[str, ...], known: Known
) -> Yielded:
    """Return the record of a message; `name` stands for one that is too large to be read."""
    if raw is None:
        return Skipped(name, "too_large", f"a message of more than {LARGEST_MESSAGE} bytes")
    digest = hashlib.sha256(raw).hexdigest()
    try:
        return _record(raw, folder, labels, known)
    except Unextractable as error:
        return Skipped(f"sha256:{digest}", error.reason, error.detail)
    except (Exception, RecursionError) as error:  # noqa: BLE001 - whatever a parser says of a mail
        detail = f"a message that is broken: {type(error).__name__} {error}"
        return Skipped(f"sha256:{digest}", "unreadable", detail[:200])


def _record(raw: bytes, folder: str, labels: tuple[str, ...], known: Known) -> Yielded:
    message = BytesParser(policy=policy.compat32).parsebytes(raw)
    texts = _Texts([])
    attachments: list[Attachment] = []
    _collect(message, texts, attachments, 0)
    body, media_type, transforms = texts.joined()
    subject = _header(message, "subject")
    participants = _participants(message)
    if not body.strip() and not attachments and not subject:
        raise Unextractable("empty", "a message without subject, text and attachments")
    if not body.strip():  # the subject, or the names of what is attached, is all that it says
        body = subject or ", ".join(attachment.name for attachment in attachments)
        media_type, transforms = "text/plain", ("subject/1",)
    if not message.keys() or not (participants or subject or _header(message, "date")):
        raise Unextractable("not_of_format", "a text without the headers of a message")
    message_id = _first_id(_header(message, "message-id"))
    replied = tuple(
        dict.fromkeys(
            _MESSAGE_ID.findall(_header(message, "references"))
            + _MESSAGE_ID.findall(_header(message, "in-reply-to"))
        )
    )
    # Copies of a message may differ, such as that of a list: they are records of their own. What a
    # server adds on the way, and what marks it as read, is not part of what was sent.
    taken = [message_id or "", subject, *participants, _header(message, "date"), folder, body]
    sent = _digest([*taken, *(each.sha256 for each in attachments)])
    record_id = f"{message_id or 'sha256'}~{sent[:12] if message_id else sent}"
    labels = tuple(dict.fromkeys([*labels, *_labels(message)]))
    version = _digest([sent, *sorted(labels)])
    if known(record_id) == version:
        return Unchanged(record_id)
    return SourceRecord(
        record_id=record_id,
        version=version,
        dedupe_key=f"sha256:{sent}",
        body=body,
        media_type=media_type,
        title=subject,
        occurred_at=_moment(message),
        participants=participants,
        thread=replied[0] if replied else message_id,
        labels=labels,
        metadata={"message_id": message_id, "in_reply_to": list(replied[-20:]), "folder": folder},
        attachments=tuple(attachments),
        transforms=transforms,
    )


class _Texts(NamedTuple):
    """The texts of a message in their order, each with its media type."""

    parts: list[tuple[str, str]]

    def joined(self) -> tuple[str, str, tuple[str, ...]]:
        """Return one body, its media type and what was done: a page is read into text only where
        it stands beside other texts.
        """
        parts = [(kind, text) for kind, text in self.parts if text.strip()]
        if len(parts) == 1:
            return parts[0][1], parts[0][0], ()
        transforms: dict[str, None] = {}
        texts = []
        for kind, text in parts:
            if kind == "text/html":
                try:
                    extracted = extract(text, kind)
                except Unextractable:
                    continue
                text = extracted.text
                transforms |= dict.fromkeys(extracted.transforms)
            texts.append(text.strip("\r\n"))
        return "\n\n".join(texts), "text/plain", tuple(transforms)


def _collect(part: Message, texts: _Texts, attachments: list[Attachment], depth: int) -> None:
    """Add the texts and attachments of a part: of alternatives the plain one, else the last."""
    if depth > _DEEPEST:
        raise Unextractable("unreadable", f"a message with more than {_DEEPEST} parts in parts")
    kind = part.get_content_type().lower()
    if kind == "message/rfc822" and depth:
        _attach(part, b"".join(bytes(each) for each in _children(part)), kind, attachments)
        return
    children = _children(part)
    if kind == "multipart/alternative" and children:
        plain = [each for each in children if each.get_content_type() == "text/plain"]
        chosen = next((each for each in plain if _text(each).strip()), children[-1])
        for child in children:
            if child is chosen or not child.get_content_type().startswith(("text/", "multipart/")):
                _collect(child, texts, attachments, depth + 1)
        return
    if children:
        for child in children:
            _collect(child, texts, attachments, depth + 1)
        return
    is_inline = part.get_content_disposition() != "attachment" and not part.get_filename()
    if kind in ("text/plain", "text/html", "text/markdown") and is_inline:
        texts.parts.append((kind, _text(part)))
    elif kind.startswith("multipart/"):
        texts.parts.append(("text/plain", _text(part)))
    else:
        _attach(part, _bytes(part), kind, attachments)


def _children(part: Message) -> list[Message]:
    payload = part.get_payload()
    if not part.is_multipart() or not isinstance(payload, list):
        return []
    return [each for each in payload if isinstance(each, Message)]


def _attach(part: Message, content: bytes, kind: str, attachments: list[Attachment]) -> None:
    name = _decoded(part.get_filename() or "").replace("\\", "/").rsplit("/", 1)[-1]
    attachments.append(
        Attachment(
            name=name or f"attachment-{len(attachments) + 1}",
            media_type=kind,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            content=content if len(content) <= LARGEST_ATTACHMENT else None,
        )
    )


def _bytes(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _text(part: Message) -> str:
    charset = part.get_content_charset()
    text, _ = decode(_bytes(part), f"text/plain; charset={charset}" if charset else "")
    return text.replace("\r\n", "\n").replace("\x00", "\ufffd")


def _headers(message: Message, name: str) -> list[str]:
    """Return the lines of a header, unfolded; bytes beyond ASCII are read as a text is."""
    return [
        decode(str(value).encode("utf-8", "surrogateescape"))[0].replace("\x00", "\ufffd")
        for key, value in message.raw_items()
        if key.lower() == name
    ]


def _header(message: Message, name: str) -> str:
    values = _headers(message, name)
    return _decoded(values[0]) if values else ""


def _decoded(value: str) -> str:
    """Return a header with its encoded words read."""
    pieces = []
    try:
        for piece, charset in decode_header(value):
            if isinstance(piece, str):
                pieces.append(piece)
            elif charset is None:
                pieces.append(piece.decode("raw-unicode-escape"))
            else:
                pieces.append(decode(piece, f"charset={charset}")[0])
    except (ValueError, LookupError, HeaderParseError):
        pieces = [value]
    text = "".join(pieces).replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split())


def _participants(message: Message) -> tuple[str, ...]:
    headers = ("from", "sender", "to", "cc", "bcc")
    values = [value for name in headers for value in _headers(message, name)]
    named = [
        f"{_decoded(name)} <{address}>" if name else address
        for name, address in getaddresses(values)
        if address
    ]
    return tuple(dict.fromkeys(named))


def _labels(message: Message) -> list[str]:
    listed = ",".join(
        _header(message, name) for name in ("x-gmail-labels", "x-keywords", "keywords")
    )
    status = _header(message, "status") + _header(message, "x-status")
    flags = [_STATUS[flag] for flag in status if flag in _STATUS]
    return [*(label.strip() for label in listed.split(",") if label.strip()), *flags]


def _first_id(value: str) -> str | None:
    found = _MESSAGE_ID.search(value)
    return found[1] if found else (value.strip()[:500] or None)


def _moment(message: Message) -> int | None:
    """Microseconds UTC of the date of a message; a date without a zone is taken as UTC."""
    try:
        moment = parsedate_to_datetime(_header(message, "date"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000_000)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def _digest(parts: list[str]) -> str:
    text = json.dumps(parts).encode("ascii")
    return hashlib.sha256(text).hexdigest()
