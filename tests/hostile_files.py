"""Files that somebody made to hurt whoever reads them, and plain ones beside them, by a script.

Each is named by what it is. What reads them takes a file or skips it with a reason; nothing ends,
hangs or grows. Those that end in `.mbox` are mailboxes, all others are files of a folder.
"""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

ENVELOPE = b"From x@example.org Mon Mar  2 10:00:00 2026\n"
_MEGABYTE = 1_000_000


def write_hostile(folder: Path) -> int:
    """Write the hostile set, with links that lead in circles and out; return how many files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in HOSTILE.items():
        (folder / name).write_bytes(make())
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "round").symlink_to(folder)
    (folder / "passwords.txt").symlink_to("/etc/passwd")
    return len(HOSTILE) + 3


def write_plain(folder: Path, count: int = 40) -> int:
    """Write pages, PDFs and texts as anybody has them; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(7)
    words = [f"{first}{last}" for first in "bdfgklmnprst" for last in ("aro", "en", "idu", "ol")]

    def prose(size: int) -> str:
        return " ".join(draw.choice(words) for _ in range(size)).capitalize() + "."

    for number in range(count):
        parts = [(prose(4)[:-1], [prose(60) for _ in range(3)]) for _ in range(12)]
        sections = "".join(
            f"<h2>{title}</h2>" + "".join(f"<p>{text}</p>" for text in texts)
            for title, texts in parts
        )
        menu = "".join(f'<li><a href="/{name}">{name}</a></li>' for name in words[:30])
        page = (
            f"<html><head><title>{prose(3)}</title></head><body><nav><ul>{menu}</ul></nav>"
            f"<main><h1>{prose(3)}</h1>{sections}</main><footer>{prose(9)}</footer></body></html>"
        )
        (folder / f"page-{number:02}.html").write_text(page, encoding="utf-8")
        lines = [line for _, texts in parts for text in texts for line in _wrapped(text)]
        (folder / f"paper-{number:02}.pdf").write_bytes(
            pdf([lines[at : at + 40] for at in range(0, len(lines), 40)] * 3)
        )
    return 2 * count


def pdf(pages: list[list[str]], streams: list[bytes] | None = None, trailer: str = "") -> bytes:
    """Return a PDF with lines of text on its pages, or with streams of their own, packed."""
    contents = streams or [
        b"BT /F1 10 Tf 14 TL 50 780 Td "
        + b" ".join(f"({line}) Tj T*".encode("latin-1") for line in lines)
        + b" ET"
        for lines in pages
    ]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        packed = zlib.compress(content)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] "
            b"/Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>" % (5 + 2 * number)
        )
        objects.append(
            b"<< /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (len(packed), packed)
        )
    body = b"%PDF-1.7\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        body
        + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
        + table
        + f"trailer << /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\n".encode()
        + b"startxref\n%d\n%%%%EOF\n" % len(body)
    )


def encrypted_pdf() -> bytes:
    """Return a PDF that asks for a password."""
    import pypdf

    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret", algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def _wrapped(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]


def _zip(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def _tar(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return file.getvalue()


def _zip_in_zip() -> bytes:
    content = _zip({"zeros": bytes(10 * _MEGABYTE)})
    for depth in range(5):
        content = _zip({f"{depth}-{number}.zip": content for number in range(8)})
    return content


def _laughs(entity: str = "lol") -> bytes:
    lines = "".join(
        f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' if level else f'<!ENTITY l0 "{entity}">'
        for level in range(10)
    )
    return f"<?xml version='1.0'?><!DOCTYPE x [{lines}]><x>&l9;</x>".encode()


def _mails(*messages: bytes) -> bytes:
    return b"\n".join(ENVELOPE + message + b"\n" for message in messages)


def _nested(depth: int) -> bytes:
    opened = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (level, level)
        for level in range(depth)
    )
    return b"From: a@b.c\nSubject: nested\n" + opened + b"\nText\n"


def _mail(headers: bytes, body: bytes = b"Text") -> bytes:
    return _mails(b"From: a@b.c\nSubject: s\n" + headers + b"\n\n" + body)


_HEAD = b"<html><body>"
HOSTILE: dict[str, Callable[[], bytes]] = {
    # Archives
    "a bomb.zip": lambda: _zip({"zeros": bytes(50 * _MEGABYTE)}),
    "zips in zips.zip": _zip_in_zip,
    "a zip that leads out.zip": lambda: _zip({"../../etc/cron.d/x": b"x", "/abs": b"x"}),
    "a zip called a page.html": lambda: _zip({"x": b"x"}),
    "a tar that leads out.tar": lambda: _tar("../../../tmp/x"),
    "a tar called a text.txt": lambda: _tar("x"),
    "a bomb.gz": lambda: gzip.compress(bytes(50 * _MEGABYTE)),
    "cut off.gz": lambda: gzip.compress(b"x" * 1_000)[:20],
    # XML
    "laughs.xml": _laughs,
    "laughs of sixteen bits.xml": lambda: _laughs().decode().encode("utf-16"),
    "laughs of a picture.svg": _laughs,
    "a long entity.xml": lambda: (
        b"<!DOCTYPE x [<!ENTITY a '" + b"a" * 100_000 + b"'>]><x>" + b"&a;" * 10_000 + b"</x>"
    ),
    "a file of this machine.xml": lambda: (
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'
    ),
    "a definition from elsewhere.xml": lambda: (
        b'<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><x>text</x>'
    ),
    "deep.xml": lambda: b"<a>" * 200_000 + b"x" + b"</a>" * 200_000,
    "cut off.xml": lambda: b"<a><b attribute='",
    "many attributes.xml": lambda: (
        b"<a " + b" ".join(b'a%d="x"' % number for number in range(100_000)) + b">x</a>"
    ),
    # Pages
    "deep.html": lambda: _HEAD + b"<div>" * 200_000 + b"deep" + b"</div>" * 200_000,
    "deep tables.html": lambda: _HEAD + b"<table><tr><td>" * 5_000 + b"deep",
    "deep quotes.html": lambda: _HEAD + b"<blockquote><p>x" * 20_000,
    "never closed.html": lambda: _HEAD + b"<b><i><a href=x><font>" * 20_000 + b"x",
    "many brackets.html": lambda: b"<" * _MEGABYTE,
    "many attributes.html": lambda: _HEAD + b"<p " + b"a=b " * 100_000 + b">x",
    "many comments.html": lambda: _HEAD + b"<!-- -- -->" * 100_000 + b"<p>x",
    "many paragraphs.html": lambda: _HEAD + b"<p>a</p>" * 100_000,
    "many headings.html": lambda: _HEAD + b"<h1>a</h1>" * 50_000,
    "many links.html": lambda: _HEAD + b"<a href='/x'>x</a> " * 50_000,
    "many cells.html": lambda: _HEAD + b"<table>" + b"<tr><td>a<td>b" * 30_000,
    "a long word.html": lambda: _HEAD + b"<p>" + b"x" * 5 * _MEGABYTE,
    "a script.html": lambda: _HEAD + b"<script>" + b"alert(1);" * 100_000 + b"</script><p>text</p>",
    "entities.html": lambda: _HEAD + b"<p>" + b"&#x41;&lt;&bogus;&#99999999;" * 50_000,
    "nulls.html": lambda: _HEAD + b"<p>a" + b" " * 9_000 + b"\x00b</p>",
    "a false charset.html": lambda: b"<meta charset=punycode><p>" + b"x" * _MEGABYTE,
    # PDFs
    "asks for a password.pdf": encrypted_pdf,
    "cut off.pdf": lambda: pdf([["some text"]] * 20)[:900],
    "head only.pdf": lambda: b"%PDF-1.7",
    "noise.pdf": lambda: b"%PDF-1.7\n" + random.Random(1).randbytes(200_000),
    "too many pages.pdf": lambda: pdf([["x"]] * 2_100),
    "a bomb of text.pdf": lambda: pdf(
        [], [b"BT /F1 1 Tf " + b"(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa) Tj " * 400_000 + b"ET"]
    ),
    "a bomb of zeros.pdf": lambda: pdf([], [bytes(100 * _MEGABYTE)]),
    "pages in a circle.pdf": lambda: pdf([["x"]]).replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"),
    "deep arrays.pdf": lambda: pdf([["x"]], trailer="/X " + "[" * 50_000 + "]" * 50_000),
    "a wrong table.pdf": lambda: pdf([["x"]]).replace(b"startxref\n", b"startxref\n99999"),
    # Texts
    "nulls.txt": lambda: b"a\x00b" * 100,
    "a late null.txt": lambda: b"a" * 20_000 + b"\x00" + b"b",
    "a long line.txt": lambda: b"word " * (4 * _MEGABYTE),
    "no encoding.txt": lambda: bytes(range(1, 256)) * 100,
    "sixteen bits without a mark.txt": lambda: "Zürich ist schön".encode("utf-16-le") * 50,
    "half of sixteen bits.txt": lambda: "Zürich".encode("utf-16")[:-1],
    "a mark and nothing.txt": lambda: b"\xef\xbb\xbf",
    "nothing.txt": lambda: b"",
    "spaces.txt": lambda: b" \n\t" * 10_000,
    "underlines.rst": lambda: b"Title\n=====\n" * 50_000,
    "underlines.md": lambda: b"Title\n---\n" * 50_000 + b"```\n" * 50_001,
    "a long heading.md": lambda: b"# " + b"x" * _MEGABYTE,
    "a program.md": lambda: b"\x7fELF" + bytes(1_000),
    # Mailboxes
    "no boundary.mbox": lambda: _mail(b"Content-Type: multipart/mixed; boundary=x"),
    "nested parts.mbox": lambda: _mails(_nested(500), _nested(20)),
    "a message in a message.mbox": lambda: _mails(
        b"Content-Type: message/rfc822\n\n" * 300 + b"From: a@b.c\n\nx"
    ),
    "many parts.mbox": lambda: _mail(
        b"Content-Type: multipart/mixed; boundary=x", b"--x\n\na\n" * 20_000
    ),
    "broken headers.mbox": lambda: _mails(
        b"no header\nFrom a\n: x\nSubject\n\x00\xff: y\n\nx", b"\n\n", b"\xff\xfe\n\n\xff"
    ),
    "broken charsets.mbox": lambda: _mails(
        b"From: =?utf-8?b?////?= <a@b.c>\nSubject: =?x?q?=FF?= =?utf-7?q?+2AA-?=\n"
        b"Content-Type: text/plain; charset=\xff\xfe\n\n\xff",
        b"From: a@b.c\nContent-Type: text/plain; charset=punycode\n\n" + b"x" * _MEGABYTE,
        b"From: a@b.c\nContent-Type: text/plain; charset=unicode_escape\n\n\\ud800 \\u0000",
        b"From: a@b.c\nContent-Transfer-Encoding: base64\n\n!!!!====",
    ),
    "broken dates.mbox": lambda: _mails(
        *(b"From: a@b.c\nDate: " + date + b"\n\nx" for date in (b"99999", b"\xff", b"0" * 5_000))
    ),
    "long headers.mbox": lambda: _mail(
        b"To: " + b"a@b.c, " * 100_000 + b"\nReferences: " + b"<a@b> " * 100_000
    ),
    "many headers.mbox": lambda: _mail(b"\n".join(b"X-%d: x" % number for number in range(50_000))),
    "a name that leads out.mbox": lambda: _mail(
        b'Content-Type: image/png; name="../../../etc/passwd\x00.png"', b"x"
    ),
    "a long line.mbox": lambda: _mail(b"X-A: b", b"x" * 20 * _MEGABYTE),
    "encoded words.mbox": lambda: _mail(b"X: y\nSubject: " + b"=?utf-8?q?a?= " * 20_000),
}
