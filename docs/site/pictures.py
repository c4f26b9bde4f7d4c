"""The pictures of the documentation: figures drawn here, and what a terminal shows.

`make docs-refresh` writes them. They stand on a card of their own, so that they can be read on a
light page and on a dark one, and name no font of another server.
"""

from __future__ import annotations

import tempfile
from html import escape
from pathlib import Path

from examples.golden_path.__main__ import draw_pictures

DOCS = Path(__file__).parent.parent
_INK, _SOFT, _LINE, _CARD = "#1f2937", "#4b5563", "#94a3b8", "#f8fafc"
_BLUE, _GREEN, _AMBER = "#dbeafe", "#dcfce7", "#fef3c7"


class Figure:
    """A drawing of boxes, texts and arrows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="14">\n'
            f"<title>{escape(title)}</title>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="{_SOFT}"/></marker>'
            "</defs>\n"
            f'<rect width="{width}" height="{height}" rx="10" fill="{_CARD}"/>\n'
        )
        self._parts: list[str] = []

    def box(
        self, x: int, y: int, width: int, height: int, *lines: str, fill: str = "#ffffff"
    ) -> None:
        """Draw a box with its lines in the middle; the first one is bold."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" '
            f'stroke="{_LINE}"/>'
        )
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width // 2, top + 18 * number, line, bold=number == 0, middle=True)

    def text(
        self, x: float, y: float, line: str, *, bold: bool = False, middle: bool = False
    ) -> None:
        """Write a line."""
        self._parts.append(
            f'<text x="{x}" y="{y:g}" fill="{_INK if bold else _SOFT}"'
            + (' font-weight="600"' if bold else ' font-size="12"')
            + (' text-anchor="middle"' if middle else "")
            + f">{escape(line)}</text>"
        )

    def arrow(self, *points: int, dashed: bool = False) -> None:
        """Draw an arrow through points x, y, x, y …"""
        pairs = zip(points[::2], points[1::2], strict=True)
        path = " ".join(f"{x},{y}" for x, y in pairs)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{_SOFT}" stroke-width="1.5" '
            + ('stroke-dasharray="4 4" ' if dashed else "")
            + 'marker-end="url(#tip)"/>'
        )

    def svg(self) -> str:
        """Return the drawing."""
        return self._head + "\n".join(self._parts) + "\n</svg>\n"


def _pieces() -> str:
    figure = Figure(
        760, 300, "Your runtime, the pieces of Tallystick, and the tally that they share"
    )
    rows = (
        ("LangGraph", "TallySaver, TallyStore"),
        ("LangChain", "TallyMiddleware, TallyCallbackHandler"),
        ("PydanticAI", "Tallystick"),
        ("LlamaIndex", "TallyRetriever, TallyMemory"),
    )
    figure.text(95, 28, "your runtime", middle=True)
    figure.text(345, 28, "one line of ours", middle=True)
    figure.text(635, 28, "one folder, or PostgreSQL", middle=True)
    for number, (runtime, piece) in enumerate(rows):
        y = 42 + 62 * number
        figure.box(20, y, 150, 46, runtime)
        figure.box(210, y, 270, 46, piece, fill=_BLUE)
        figure.arrow(170, y + 23, 206, y + 23)
        figure.arrow(480, y + 23, 526, y + 23)
    figure.box(530, 42, 210, 64, "Memory", "what is known of each user", fill=_GREEN)
    figure.box(530, 121, 210, 64, "Context", "what fits, and why", fill=_GREEN)
    figure.box(530, 200, 210, 70, "Receipts", "what was seen and done", fill=_GREEN)
    return figure.svg()


def _call() -> str:
    figure = Figure(760, 250, "One model call, from its candidates to its receipt")
    for number, name in enumerate(("messages", "memories", "files", "tools")):
        figure.box(20, 24 + 52 * number, 120, 40, name)
        figure.arrow(140, 44 + 52 * number, 196, 122)
    figure.box(200, 92, 150, 60, "compiler", "budget, rules", fill=_BLUE)
    figure.arrow(350, 122, 396, 122)
    figure.box(400, 92, 140, 60, "request", "what fits")
    figure.arrow(540, 122, 586, 122)
    figure.box(590, 92, 150, 60, "model", fill=_AMBER)
    figure.box(400, 190, 340, 44, "receipt: what was seen, why, and the answer", fill=_GREEN)
    figure.arrow(275, 152, 275, 212, 396, 212, dashed=True)
    figure.arrow(665, 152, 665, 186, dashed=True)
    figure.text(212, 180, "a reason for", middle=False)
    figure.text(212, 196, "each one")
    return figure.svg()


def _chain() -> str:
    figure = Figure(760, 190, "A chain of receipts")
    for number, name in enumerate(("step 1", "step 2", "step 3")):
        x = 20 + 180 * number
        figure.box(x, 40, 140, 64, name, "digest of what it did", fill=_GREEN)
        if number:
            figure.arrow(x, 72, x - 36, 72)
    figure.text(90, 128, "each receipt has the digest of the one before")
    figure.arrow(520, 72, 566, 72)
    figure.box(570, 40, 170, 64, "the head", "9:3f1c…", fill=_AMBER)
    figure.text(655, 128, "you keep it elsewhere:", middle=True)
    figure.text(655, 144, "the foil", bold=True, middle=True)
    figure.text(90, 164, "the stock", bold=True)
    return figure.svg()


FIGURES = {"pieces.svg": _pieces, "call.svg": _call, "chain.svg": _chain}


def main() -> None:
    """Write every picture."""
    for name, draw in FIGURES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        draw_pictures(Path(folder), DOCS)


if __name__ == "__main__":
    main()
