"""Messages of mailboxes are read one at a time, whatever was done to them on the way."""

from __future__ import annotations

import hashlib
import mailbox
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.testing.source_contract import Source, SourceContract
from tallystick_ingest.contract import Checkpoint, NotOfFormat, Skipped, SourceRecord, Yielded
from tallystick_sources import mailbox as mailboxes
from tallystick_sources import messages
from tallystick_sources.mailbox import MailboxSource


def _message(number: int, **headers: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ada Lovelace <ada@example.org>"
    message["To"] = "Bob <bob@example.org>"
    message["Subject"] = f"Herons, part {number}"
    message["Message-ID"] = f"<{number}@example.org>"
    message["Date"] = "Mon, 02 Mar 2026 10:00:00 +0100"
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(f"They eat fish, and that is sentence {number}.\n")
    return message


def _mbox(path: Path, messages: list[EmailMessage]) -> Path:
    box = mailbox.mbox(path)
    for message in messages:
        box.add(message)
    box.close()
    return path


def _raw(path: Path, *messages: bytes) -> Path:
    envelope = b"From x@example.org Mon Mar  2 10:00:00 2026\n"
    path.write_bytes(b"\n".join(envelope + message for message in messages))
    return path


def _read(path: Path) -> list[Yielded]:
    items = MailboxSource().records(str(path), None, lambda _: None)
    return [item for item in items if not isinstance(item, Checkpoint)]


def _only(path: Path) -> SourceRecord:
    [record] = _read(path)
    assert isinstance(record, SourceRecord), record
    return record


class TestContractOfMbox(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        messages = [_message(number) for number in range(230)]
        messages[3].add_attachment(b"\x00\x01" * 500, maintype="image", subtype="png", filename="a")
        page = tmp_path / "page.html"
        page.write_text("<html>no mail</html>")
        return Source(
            MailboxSource,
            str(_mbox(tmp_path / "mail.mbox", messages)),
            not_of_format=(str(page), str(tmp_path), str(tmp_path / "nothing")),
        )


class TestContractOfMaildir(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        box = mailbox.Maildir(tmp_path / "mail")
        for number in range(8):
            box.add(mailbox.MaildirMessage(_message(number)))
        folder = box.add_folder("Work")
        for number in range(8, 12):
            folder.add(mailbox.MaildirMessage(_message(number)))
        return Source(MailboxSource, str(tmp_path / "mail"))


def test_a_message_has_its_thread_people_subject_time_and_labels(tmp_path: Path) -> None:
    reply = _message(
        3,
        References="<1@example.org> <2@example.org>",
        In_Reply_To="<2@example.org>",
        Cc='"Doe, Jane" <jane@example.org>, bob@example.org',
        X_Gmail_Labels="Inbox,Birds",
    )

    record = _only(_mbox(tmp_path / "mail", [reply]))

    assert record.record_id.startswith("3@example.org~")
    assert (record.title, record.thread, record.labels) == (
        "Herons, part 3",
        "1@example.org",
        ("Inbox", "Birds"),
    )
    assert record.participants == (
        "Ada Lovelace <ada@example.org>",
        "Bob <bob@example.org>",
        "Doe, Jane <jane@example.org>",
        "bob@example.org",
    )
    assert record.occurred_at == 1_772_442_000_000_000
    assert record.body == "They eat fish, and that is sentence 3.\n"


def test_an_attachment_is_what_it_was_and_beyond_its_limit_only_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "LARGEST_ATTACHMENT", 100)
    message = _message(1)
    message.add_attachment(b"%PDF small", maintype="application", subtype="pdf", filename="ö.pdf")
    message.add_attachment(b"x" * 101, maintype="image", subtype="png", filename="../../big.png")

    small, big = _only(_mbox(tmp_path / "mail", [message])).attachments

    assert (small.name, small.media_type, small.content) == (
        "ö.pdf",
        "application/pdf",
        b"%PDF small",
    )
    assert (big.name, big.size, big.content) == ("big.png", 101, None)
    assert big.sha256 == hashlib.sha256(b"x" * 101).hexdigest()


def test_a_message_that_only_carries_something_says_its_subject(tmp_path: Path) -> None:
    message = _message(1)
    message.set_content("")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="scan.pdf")
    unnamed = _raw(tmp_path / "raw", b"From: a@b.c\nContent-Type: image/png; name=a.png\n\nx\n")

    record = _only(_mbox(tmp_path / "mail", [message]))

    assert (record.body, record.transforms) == ("Herons, part 1", ("subject/1",))
    assert len(record.attachments) == 1
    assert _only(unnamed).body == "a.png"


def test_of_alternatives_the_plain_text_is_taken_and_a_page_only_without_one(
    tmp_path: Path,
) -> None:
    both, page = _message(1), _message(2)
    both.add_alternative("<h1>They eat fish</h1>", subtype="html")
    page.set_content("<p>Only a page</p>", subtype="html")

    first, second = _read(_mbox(tmp_path / "mail", [both, page]))

    assert isinstance(first, SourceRecord)
    assert isinstance(second, SourceRecord)
    assert (first.media_type, first.body) == (
        "text/plain",
        "They eat fish, and that is sentence 1.\n",
    )
    assert (second.media_type, second.body) == ("text/html", "<p>Only a page</p>\n")


def test_a_page_beside_a_text_is_read_into_text(tmp_path: Path) -> None:
    raw = (
        b"From: a@example.org\nSubject: both\nContent-Type: multipart/mixed; boundary=x\n\n"
        b"--x\nContent-Type: text/html\n\n<html><body><h2>Title</h2><p>A page of a list.</p></body>"
        b"</html>\n--x\nContent-Type: text/plain\n\nThe list says goodbye.\n--x--\n"
    )

    record = _only(_raw(tmp_path / "mail", raw))

    assert record.body == "## Title\nA page of a list.\n\nThe list says goodbye."
    assert record.transforms == ("html/trafilatura-2",)


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        (b"Content-Type: text/plain; charset=iso-8859-1", b"caf\xe9", "café"),
        (b"Content-Type: text/plain; charset=utf-8", "Zürich".encode(), "Zürich"),
        (b"Content-Type: text/plain; charset=nothing", "Zürich".encode(), "Zürich"),
        (b"Content-Type: text/plain", b"caf\xe9", "café"),
        (b"Content-Type: text/plain; charset=koi8-r", "привет".encode("koi8-r"), "привет"),
        (b"Content-Transfer-Encoding: base64", b"SGVsbG8=", "Hello"),
        (b"Content-Transfer-Encoding: quoted-printable", b"a=3Db=\nc", "a=bc"),
    ],
)
def test_a_text_is_read_in_the_encoding_that_it_has(
    tmp_path: Path, headers: bytes, body: bytes, text: str
) -> None:
    record = _only(_raw(tmp_path / "mail", b"From: a@b.c\n" + headers + b"\n\n" + body + b"\n"))

    assert str(record.body).strip() == text


@pytest.mark.parametrize(
    ("value", "title"),
    [
        (b"=?utf-8?q?Z=C3=BCrich?=", "Zürich"),
        (b"=?utf-8?q?Z=C3=BCrich?= and more", "Zürich and more"),
        ("Zürich".encode(), "Zürich"),
        (b"caf\xe9", "café"),
        (b"=?nothing?q?x?=", "x"),
        (b"=?utf-8?b?!!!?=", None),
        (b"a\n b", "a b"),
    ],
)
def test_a_subject_is_read_however_it_is_written(
    tmp_path: Path, value: bytes, title: str | None
) -> None:
    record = _only(_raw(tmp_path / "mail", b"From: a@b.c\nSubject: " + value + b"\n\nx\n"))

    assert title is None or record.title == title


def test_only_a_line_of_an_envelope_behind_an_empty_one_begins_a_message(tmp_path: Path) -> None:
    first = (
        b"From: a@b.c\nSubject: one\n\nFrom here on it is mine.\nFrom x Mon Mar 2 10:00:00 2026\n"
        b">From a letter\n"
    )

    one, two = _read(_raw(tmp_path / "mail", first, b"From: a@b.c\nSubject: two\n\nx\n"))

    assert isinstance(one, SourceRecord)
    assert isinstance(two, SourceRecord)
    assert one.body == ("From here on it is mine.\nFrom x Mon Mar 2 10:00:00 2026\nFrom a letter\n")
    assert two.title == "two"


_PIECES = [
    b"From: ",
    b"Subject: ",
    b"Date: ",
    b"Content-Type: multipart/mixed; boundary=x",
    b"\n",
    b"\n\n",
    b"--x",
    b"--x--",
    b"Content-Type: text/html; charset=",
    b"Content-Transfer-Encoding: base64",
    b"Content-Disposition: attachment; filename*=utf-8''",
    b"=?utf-8?q?",
    b"?=",
    b"<a@b>",
    b",",
    b";",
    b'"',
    b"(",
    b"\\",
    b"message/rfc822",
    b"References: ",
    b"Content-Type: ",
    b" ",
    b"\xff",
    b"\x00",
    b"multipart/alternative",
    b"utf-7",
    b"+2AA-",
    b"\r",
    b"%",
    b"'",
    b"==",
    b"99999",
]


@given(st.lists(st.sampled_from(_PIECES) | st.binary(max_size=5), max_size=40))
def test_whatever_a_message_holds_it_is_a_record_or_skipped(pieces: list[bytes]) -> None:
    item = messages.read_message(b"".join(pieces), "name", "", (), lambda _: None)

    assert isinstance(item, SourceRecord | Skipped)
    if isinstance(item, SourceRecord):
        said = [item.record_id, item.title, item.thread or "", *item.participants, *item.labels]
        said += [str(item.body), *(attachment.name for attachment in item.attachments)]
        assert "\x00" not in "".join(said).encode("utf-8").decode("utf-8")


def test_a_text_without_headers_is_skipped_and_the_next_is_read(tmp_path: Path) -> None:
    broken, fine = _read(_raw(tmp_path / "mail", b"\n\n", b"From: a@b.c\nSubject: s\n\nx\n"))

    assert isinstance(broken, Skipped)
    assert isinstance(fine, SourceRecord)


def test_a_message_that_is_too_large_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailboxes, "LARGEST_MESSAGE", 1_000)
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", 1_000)

    large, fine = _read(
        _raw(
            tmp_path / "mail",
            b"From: a@b.c\n\n" + b"x" * 5_000 + b"\n",
            b"From: a@b.c\nSubject: s\n\nx\n",
        )
    )

    assert large == Skipped("message at byte 0", "too_large", "a message of more than 1000 bytes")
    assert isinstance(fine, SourceRecord)


def test_a_mailbox_of_ten_thousand_goes_on_without_reading_what_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "mail"
    envelope = b"From x@example.org Mon Mar  2 10:00:00 2026\n"
    path.write_bytes(
        b"\n".join(
            envelope + b"From: a@b.c\nMessage-ID: <%d@b>\n\nText %d.\n" % (number, number)
            for number in range(10_000)
        )
    )
    source = MailboxSource()
    cursors = [
        item.cursor
        for item in source.records(str(path), None, lambda _: None)
        if isinstance(item, Checkpoint)
    ]

    damaged = bytearray(path.read_bytes())
    place = int(cursors[-3])
    damaged[100 : place - 100] = b"\xff" * (place - 200)
    path.write_bytes(damaged)
    rest = list(source.records(str(path), cursors[-3], lambda _: None))

    assert len(cursors) == 400
    assert sum(isinstance(item, SourceRecord) for item in rest) == 50


def test_a_mailbox_that_was_written_anew_is_read_from_its_begin(tmp_path: Path) -> None:
    path = _mbox(tmp_path / "mail", [_message(number) for number in range(5)])
    cursor = str(path.stat().st_size)
    path.unlink()
    _mbox(path, [_message(number) for number in range(3)])

    items = list(MailboxSource().records(str(path), cursor, lambda _: None))
    behind = list(MailboxSource().records(str(path), "100", lambda _: None))

    assert len(items) == len(behind) == 4


def test_mail_that_came_since_is_what_comes_after_the_last_checkpoint(tmp_path: Path) -> None:
    path = _mbox(tmp_path / "mail", [_message(number) for number in range(3)])
    *_, last = MailboxSource().records(str(path), None, lambda _: None)
    assert isinstance(last, Checkpoint)
    _mbox(path, [_message(7)])

    [new, _] = MailboxSource().records(str(path), last.cursor, lambda _: None)

    assert isinstance(new, SourceRecord)
    assert new.title == "Herons, part 7"


def test_what_is_no_mailbox_is_refused_with_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")

    with pytest.raises(NotOfFormat, match="no mbox, which begins with 'From ': found applicat"):
        MailboxSource().records(str(tmp_path / "a.pdf"), None, lambda _: None)


def test_a_checkpoint_of_an_mbox_says_which_share_of_its_bytes_was_read(tmp_path: Path) -> None:
    box = _mbox(tmp_path / "mail.mbox", [_message(number) for number in range(100)])
    places = [
        item
        for item in MailboxSource().records(str(box), None, lambda _: None)
        if isinstance(item, Checkpoint)
    ]
    size = box.stat().st_size
    assert [each.share for each in places] == [int(each.cursor) / size for each in places]
    assert places[-1].share == 1


def test_the_messages_of_a_maildir_are_counted(tmp_path: Path) -> None:
    box = mailbox.Maildir(tmp_path / "mail")
    box.add_folder("birds").add(_message(0))
    box.add(_message(1))
    assert MailboxSource().corpus(str(tmp_path / "mail")).size == 2
