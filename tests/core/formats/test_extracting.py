"""A body becomes text with its headings, or a reason why there is none; it never hurts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile_files import HOSTILE, encrypted_pdf, pdf, write_hostile

from tallystick.errors import MissingExtra
from tallystick.formats import headings, pdf_child
from tallystick.formats.decoding import decode
from tallystick.formats.extracting import Extracted, Unextractable, extract
from tallystick.formats.pdf_text import PdfReader

PAGE = """<html><head><title>Manual of herons</title></head><body>
<nav><a href="/">Home</a> <a href="/blog">Blog</a></nav>
<main><h1>Herons</h1><p>Herons stand in the water and wait for fish, for hours if they must.</p>
<h2>Feeding</h2><p>They eat fish, frogs and mice, and they eat in the morning.</p>
<h3>At night</h3><p>At night they rest in trees, many of them together.</p>
<pre><code>heron.wait()
heron.eat()</code></pre>
<h2>Nests</h2><p>Nests are of twigs, and are used again for years.</p></main>
<footer>Copyright</footer></body></html>"""


def test_a_page_keeps_its_headings_and_loses_its_menu() -> None:
    page = extract(PAGE, "text/html")

    headings = [line for line in page.text.splitlines() if line.startswith("#")]
    assert headings == ["# Herons", "## Feeding", "### At night", "## Nests"]
    assert (page.title, page.transforms) == ("Manual of herons", ("html/trafilatura-2",))
    assert "heron.wait()\nheron.eat()" in page.text
    assert "Blog" not in page.text


def test_a_short_page_keeps_its_heading_too() -> None:
    page = extract(b"<html><body><h1>Open</h1><p>Until eight.</p></body></html>", "text/html")

    assert page.text == "# Open\nUntil eight."


def test_a_page_in_which_no_text_is_found_is_taken_whole() -> None:
    page = extract(f"<html><body>{'<div>' * 150}<h2>Deep</h2>text", "text/html")

    assert page.transforms in (("html/text-1",), ("html/trafilatura-2",))
    assert "## Deep" in page.text
    assert "text" in page.text


@pytest.mark.parametrize(
    ("body", "name", "text"),
    [
        (
            "Title\n=====\n\nOne\n\nPart\n----\n\nTwo\n",
            "a.md",
            "# Title\n\nOne\n\n## Part\n\nTwo\n",
        ),
        ("```\nTitle\n=====\n```\n", "a.md", "```\nTitle\n=====\n```\n"),
        ("- item\n---\n", "a.md", "- item\n---\n"),
        ("a\n\n---\n\nb", "a.md", "a\n\n---\n\nb"),
        (
            "=====\nTitle\n=====\n\nOne\n\nPart\n----\n\nTwo\n\nPiece\n~~~~~\n\nOther\n-----\n",
            "a.rst",
            "# Title\n\nOne\n\n## Part\n\nTwo\n\n### Piece\n\n## Other",
        ),
        ("Title\n=====\n\n  indented\n  --------\n", "a.rst", "# Title\n\n  indented\n  --------"),
        ("Title\n=====", "a.txt", "Title\n====="),
    ],
)
def test_headings_begin_with_a_sign_whatever_they_were(body: str, name: str, text: str) -> None:
    assert extract(body.encode(), "", name).text == text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Birds\n\n## Herons\n\n## Storks\n", "Birds"),
        ("## Birds\n\ntext", ""),
        ("# One\n\n# Two\n", ""),
        ("## One\n\n# Two\n", ""),
        ("```\n# no heading\n```\n\n# Birds\n", "Birds"),
        ("text", ""),
    ],
)
def test_the_title_is_the_heading_above_all_others(text: str, title: str) -> None:
    assert extract(text, "text/markdown").title == title


@pytest.mark.parametrize(
    ("body", "media_type", "text", "transforms"),
    [
        ("Zürich".encode(), "text/plain", "Zürich", ()),
        ("Zürich".encode("utf-8-sig"), "text/plain", "Zürich", ()),
        ("Zürich".encode("utf-16"), "text/plain", "Zürich", ("decoded/utf-16",)),
        ("Zürich".encode("utf-32"), "text/plain", "Zürich", ("decoded/utf-32",)),
        ("Zürich".encode("latin-1"), "text/plain", "Zürich", ("decoded/latin-1",)),
        ("привет".encode("koi8-r"), "text/plain; charset=koi8-r", "привет", ("decoded/koi8-r",)),
        (b"caf\xe9 and more", "text/plain; charset=utf-8", "caf\ufffd and more", None),
        (b"a" * 9_000 + b"\x00", "text/plain", "a" * 9_000 + "\ufffd", ("nulls/1",)),
        (b"text", "text/plain; charset=hex", "text", ()),
    ],
)
def test_bytes_are_read_in_the_encoding_that_they_have_and_it_is_said(
    body: bytes, media_type: str, text: str, transforms: tuple[str, ...] | None
) -> None:
    expected = ("decoded/utf-8", "replaced/1") if transforms is None else transforms

    assert extract(body, media_type) == Extracted(text, "", expected)


def test_a_page_is_read_in_the_encoding_that_its_head_declares() -> None:
    page = '<html><head><meta charset="koi8-r"></head><body><p>привет</p></body></html>'

    assert decode(page.encode("koi8-r"))[0] == page


@pytest.mark.parametrize(
    ("body", "media_type", "reason"),
    [
        (b"", "text/plain", "empty"),
        (b" \n", "text/plain", "empty"),
        (b"<html><body></body></html>", "text/html", "empty"),
        (b"\x89PNG\r\n\x1a\n", "text/plain", "unsupported_type"),
        (b"PK\x03\x04", "text/markdown", "unsupported_type"),
        (b"a\x00b", "text/plain", "unsupported_type"),
        (b"anything", "video/mp4", "unsupported_type"),
        (b"<!DOCTYPE x [<!entity a 'b'>]><x>&a;</x>", "application/xml", "expands_too_far"),
        (b"%PDF-1.7 broken", "application/pdf", "unreadable"),
        (pdf([["x"]] * 2_001), "application/pdf", "too_large"),
        (pdf([[]]), "application/pdf", "empty"),
        (encrypted_pdf(), "text/plain", "encrypted"),
    ],
)
def test_a_body_without_text_says_why(body: bytes, media_type: str, reason: str) -> None:
    with pytest.raises(Unextractable) as refused:
        extract(body, media_type)

    assert refused.value.reason == reason
    assert refused.value.detail


@given(
    st.binary(max_size=300) | st.text(max_size=200),
    st.sampled_from(
        ["", "text/html", "application/xml", "text/markdown", "text/x-rst", "a/b; charset=utf-7"]
    ),
)
def test_whatever_a_body_holds_it_gives_text_or_a_reason(body: bytes | str, kind: str) -> None:
    try:
        said = extract(body, kind, "name").text
    except Unextractable as refused:
        said = refused.detail

    assert said
    assert "\x00" not in said
    assert isinstance(body, str) or said.encode("utf-8")


def test_the_text_of_xml_is_that_of_its_elements() -> None:
    document = extract(b"<feed><title>Herons</title><p>They <b>eat</b></p></feed>", "text/xml")

    assert document == Extracted("Herons\nThey\neat", "", ("xml/text-1",))


def test_a_pdf_is_read_page_by_page_in_one_process() -> None:
    reader = PdfReader()
    try:
        first = reader.read(pdf([["They eat fish."], ["They rest."]]))
        child = reader._child
        second = reader.read(pdf([["Again."]]))

        assert (first, second) == (("They eat fish.\n\nThey rest.", ""), ("Again.", ""))
        assert reader._child is child
    finally:
        reader.close()


def test_without_a_binary_of_pdfium_the_other_library_reads_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pdf_child, "_has_pdfium", lambda: False)

    assert pdf_child.read(pdf([["They eat fish."], ["They rest."]])) == {
        "text": "They eat fish.\n\nThey rest.",
        "title": "",
    }
    refused = [encrypted_pdf(), pdf([["x"]] * 2_001), b"%PDF-1.7 broken"]
    assert [pdf_child.read(body)["reason"] for body in refused] == [
        "encrypted",
        "too_large",
        "unreadable",
    ]


def test_a_pdf_that_ends_its_reader_is_refused_and_the_next_is_read() -> None:
    reader = PdfReader()
    try:
        with pytest.raises(Unextractable) as refused:
            reader.read(HOSTILE["a bomb of text.pdf"]())

        assert refused.value.reason in ("unreadable", "too_large")
        assert reader.read(pdf([["Fine."]])) == ("Fine.", "")
    finally:
        reader.close()


def test_a_pdf_that_takes_too_long_is_refused_and_a_reader_that_went_away_is_started_again() -> (
    None
):
    reader = PdfReader(seconds=0.3)
    slow = pdf([[f"line {number}" for number in range(2_000)]] * 1_500)
    try:
        with pytest.raises(Unextractable) as refused:
            reader.read(slow)
        assert (refused.value.reason, "0.3 s" in refused.value.detail) == ("too_slow", True)
    finally:
        reader.close()

    reader = PdfReader()
    try:
        reader.read(pdf([["Fine."]]))
        assert reader._child is not None
        reader._child.kill()
        assert reader.read(pdf([["Again."]])) == ("Again.", "")
    finally:
        reader.close()


def test_a_library_that_is_missing_is_named_with_the_line_that_adds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    monkeypatch.setattr("tallystick.errors.base.find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r"trafilatura is not installed\. Run: pip install"):
        extract(PAGE, "text/html")


@pytest.mark.slow
def test_a_hostile_set_ends_nothing_and_stays_within_memory(tmp_path: Path) -> None:
    """Each file is taken or skipped with a reason, by a process that stays below 500 MB, as does
    the one that reads its PDFs.
    """
    count = write_hostile(tmp_path)
    script = Path(__file__).with_name("hostile_reading.py")
    path = os.pathsep.join(entry for entry in sys.path if entry)

    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    said = json.loads(done.stdout)
    assert (count, len(said["outcomes"])) == (count, count)
    assert count >= 60
    assert max(said["peaks"]) <= 500 * 1_024 * 1_024
    assert {
        name: outcome
        for name, outcome in said["outcomes"].items()
        if not name.endswith(".mbox") and outcome != "text"
    } == {
        "a bomb of text.pdf": "unreadable",
        "a bomb of zeros.pdf": "empty",
        "a bomb.gz": "unsupported_type",
        "a bomb.zip": "unsupported_type",
        "a file of this machine.xml": "expands_too_far",
        "a long entity.xml": "expands_too_far",
        "a mark and nothing.txt": "empty",
        "a program.md": "unsupported_type",
        "a tar called a text.txt": "unsupported_type",
        "a tar that leads out.tar": "unsupported_type",
        "a zip called a page.html": "unsupported_type",
        "a zip that leads out.zip": "unsupported_type",
        "asks for a password.pdf": "encrypted",
        "circle": "unreadable",
        "cut off.gz": "unsupported_type",
        "cut off.pdf": "unreadable",
        "cut off.xml": "empty",
        "deep tables.html": "empty",
        "deep.html": "empty",
        "deep.xml": "empty",
        "head only.pdf": "unreadable",
        "laughs of a picture.svg": "unsupported_type",
        "laughs of sixteen bits.xml": "expands_too_far",
        "laughs.xml": "expands_too_far",
        "never closed.html": "empty",
        "noise.pdf": "unreadable",
        "nothing.txt": "empty",
        "nulls.txt": "unsupported_type",
        "pages in a circle.pdf": "unreadable",
        "passwords.txt": "outside",
        "round": "ignored",
        "sixteen bits without a mark.txt": "unsupported_type",
        "spaces.txt": "empty",
        "too many pages.pdf": "too_large",
        "zips in zips.zip": "unsupported_type",
    }


def test_headings_of_code_are_none_and_a_sign_of_the_text_stays() -> None:
    text = "# C#\n\n```\n# no\n```\n\n## Feeding ##\n\n~~~ py\n# no\n``` \n# no\n~~~\n ### Nests\n"

    found = [(each.level, each.text, text[each.start :][:2]) for each in headings(text)]

    assert found == [(1, "C#", "# "), (2, "Feeding", "##"), (3, "Nests", " #")]
