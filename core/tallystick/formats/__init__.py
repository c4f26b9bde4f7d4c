"""Formats: what bytes are, and the text of pages, PDFs and markup as Markdown. Pure but for PDFs,
which a child process reads.

Importing this loads nothing heavy; the libraries of a format come with its first body.
"""

from tallystick.formats.decoding import TextReason, Unextractable, decode, media_type_of
from tallystick.formats.extracting import Extracted, extract
from tallystick.formats.markup import Heading, headings

__all__ = [
    "Extracted",
    "Heading",
    "TextReason",
    "Unextractable",
    "decode",
    "extract",
    "headings",
    "media_type_of",
]
