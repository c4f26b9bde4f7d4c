"""The documentation runs: every block of Python, every command and every link in README.md and
docs/.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])

_BLOCK = re.compile(
    r"^(?:<!-- no-run: (?P<reason>[^\n]*?) -->\n+)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    re.M | re.S,
)
_NEEDS = re.compile(r"needs (?:a|an|the) [^.]*\b(?:key|server|package)\b")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line where that begins, and why it is not
    run.
    """

    language: str
    code: str
    line: int
    reason: str | None
    printed: str | None = None
    """What stands in a block of text right below it: what it prints."""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = list(_BLOCK.finditer(text))
    below = [
        after["code"]
        if after is not None and after["language"] == "text" and after.start() <= one.end() + 2
        else None
        for one, after in zip_longest(found, found[1:])
    ]
    return [
        Block(
            one["language"],
            one["code"],
            text.count("\n", 0, one.start("code")),
            one["reason"],
            printed,
        )
        for one, printed in zip(found, below, strict=True)
    ]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# LlamaIndex looks at the fields of its agents in a way that pydantic deprecates.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
# tests/test_getting_started.py runs that page as one script.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "getting-started.md"], ids=name
)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page share their names, run in order, in a folder of their own, and print
    what stands below.
    """
    module = ModuleType(f"documentation_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)

    with _event_loop() as loop:
        for place, block in _blocks_with_earlier(page):
            if block.language != "python":
                continue
            # Empty lines above make a traceback point into the page.
            code = compile("\n" * block.line + block.code, str(place), "exec")
            if block.reason is None:
                capsys.readouterr()
                asyncio.set_event_loop(loop)  # asyncio.run in a block takes it away
                exec(code, vars(module))
                printed = capsys.readouterr().out
                if page in (ROOT / "README.md", DOCS / "runtimes.md"):
                    assert _told(printed) == _told(block.printed or "")
                assert block.printed is None or _told(printed) == _told(block.printed)


_EARLIER = re.compile(r"[Tt]he code goes on from that of (?:the guide, )?\[[^\]]*\]\(([^)]+)\)")


def _blocks_with_earlier(page: Path) -> list[tuple[Path, Block]]:
    """The blocks of a page, after those of the page from which its code goes on."""
    text = page.read_text(encoding="utf-8")
    earlier = _EARLIER.search(text)
    before = _blocks_with_earlier((page.parent / earlier[1]).resolve()) if earlier else []
    return [*before, *((page, block) for block in blocks(text))]


def _told(text: str) -> str:
    """A text with the ends of ids, which differ from run to run, left out."""
    return re.sub(r"\b[0-9a-f]{8}\b", "…", text)


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop for what a page runs synchronously; one made by the runtime would be left to the
    garbage collector.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_only_what_needs_a_key_a_server_or_a_package_is_not_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    reasons = [block.reason for block in blocks(text) if block.reason is not None]

    assert len(reasons) == text.count("<!-- no-run"), (
        "a no-run comment stands alone on the line above its block"
    )
    assert [reason for reason in reasons if not _NEEDS.match(reason)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    from tallystick_cli.app import GROUPS

    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    verbs = {name for names in GROUPS.values() for name in names}

    assert set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", text, re.M)) <= targets
    assert set(re.findall(r"(?:^\$ |`)tally (?:--[a-z]+ \S+ )*([a-z][a-z-]*)", text, re.M)) <= verbs


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_block_of_python_is_passed_over(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert text.count("```python") == sum(block.language == "python" for block in blocks(text))


def test_receipts_are_explained_before_their_words_are_used() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    runtimes = (DOCS / "runtimes.md").read_text(encoding="utf-8")
    before = readme + runtimes.partition("\n### Receipts\n")[0]

    assert re.findall(r"(?i)\b(?:foil|stock|tape|bundle|pack|wake)s?\b", before) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_sentences_are_short(page: Path) -> None:
    """Twenty words in the mean at most, and none that has to be read twice."""
    text = re.sub(
        r"^```.*?^```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "|", "!"))]
    plain = [re.sub(r"`[^`]*`|\[([^\]]*)\]\([^)]*\)", r"\1 ", line) for line in lines]
    lengths = [
        len(part.split()) for line in plain for part in re.split(r"(?<=[.!?:;])\s+", line) if part
    ]

    assert sum(lengths) <= 20 * len(lengths)
    assert max(lengths) <= 50


@pytest.mark.parametrize("module", ["pictures", "screens"])
def test_what_draws_the_documentation_imports(module: str) -> None:
    """It is run by hand, and imports examples that move."""
    assert callable(import_module(f"docs.site.{module}").main)


def test_every_public_name_is_written_about() -> None:
    import tallystick

    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert [public for public in tallystick.__all__ if not re.search(rf"\b{public}\b", text)] == []


def test_every_dependency_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    lists = [
        project["project"]["dependencies"],
        *extras.values(),
        *project["dependency-groups"].values(),
    ]
    wanted = {
        re.split(r"[\[<>=~! ]", line)[0]
        for lines in lists
        for line in lines
        if isinstance(line, str)
    }

    table = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    assert {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)} == wanted - {
        "tallystick"
    }


def test_what_a_block_prints_stands_right_below_it() -> None:
    page = (
        "```python\nprint(1)\n```\n\n```text\n1\n```\n\nText\n\n```python\na = "
        "1\n```\n\nText\n\n```text\nx\n```\n"
    )

    assert [block.printed for block in blocks(page)] == ["1\n", None, None, None]


def test_a_block_that_is_marked_is_told_from_one_that_is_not() -> None:
    page = (
        "Text\n\n```python\na = 1\n```\n\n<!-- no-run: needs an OpenAI key -->\n```python\nb "
        "= 2\n```\n"
    )

    assert blocks(page) == [
        Block("python", "a = 1\n", 3, None),
        Block("python", "b = 2\n", 8, "needs an OpenAI key"),
    ]


@pytest.mark.parametrize(
    ("reason", "accepted"),
    [
        ("needs an OpenAI key", True),
        ("needs a PostgreSQL server", True),
        ("needs the address of a server", True),
        ("needs the package deepagents", True),
        ("too slow", False),
        ("a sketch", False),
        ("needs a donkey", False),
    ],
)
def test_a_reason_names_a_key_a_server_or_a_package(reason: str, accepted: bool) -> None:
    assert bool(_NEEDS.match(reason)) is accepted


def test_each_promise_of_the_page_on_security_is_held_by_a_test() -> None:
    """A row without a test, or with one that is not there, fails here."""
    lines = [
        line
        for name in ("security.md", "reference/security.md")
        for line in (DOCS / name).read_text(encoding="utf-8").splitlines()
    ]
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| ---")]
    promises = [row for row in rows if not row.endswith("| held by |")]
    held = {row: re.findall(r"`(tests/[\w/]+\.py)`", row.rsplit(" | ", 1)[1]) for row in promises}

    assert len(promises) > 25
    assert [row for row, files in held.items() if not files] == []
    assert [name for files in held.values() for name in files if not (ROOT / name).exists()] == []


# The pages of a reader who looks nothing up: those before the reference


def _guides() -> list[Path]:
    """README and the pages that the contents list before the reference."""
    before = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## Reference\n")[0]
    listed = re.findall(r"^- \[[^\]]*\]\(([\w/-]+\.md)\)", before, re.M)
    return [ROOT / "README.md", *(DOCS / page for page in listed)]


GUIDES = _guides()


def _prose(page: Path) -> str:
    """The text of a page without its blocks and comments."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.M | re.S)


def test_the_contents_come_in_the_order_in_which_a_reader_wants_them() -> None:
    sections = re.findall(r"^## (.*)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M)

    assert sections[:7] == [
        "Get it running",
        "Two users",
        "What it remembers, and how to correct it",
        "What the model saw, and why",
        "Rules",
        "Deploying",
        "Deleting a user",
    ]
    assert sections[-1] == "Reference"
    assert [page for page in DOCS.glob("reference/*.md") if page in GUIDES] == []


def test_the_readme_is_two_screens_with_one_table() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 100
    assert sum(line.startswith("| ---") for line in lines) == 1


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_page_is_short_and_the_rest_is_reference(page: Path) -> None:
    assert len(_prose(page).split()) <= 1_500


GLOSSARY = ("foil", "stock", "wake", "surface", "boundary")
"""Words of ours that cost a reader: a sentence that has one explains it, and marks it as a word."""


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_word_of_ours_stands_only_where_its_sentence_explains_it(page: Path) -> None:
    """Such a sentence writes it as *foil*; the glossary has each in a row of its own."""
    lines = [line for line in _prose(page).splitlines() if not line.startswith("| ")]
    if page.name != "concepts.md":
        lines = _prose(page).splitlines()
    plain = [re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line) for line in lines]
    sentences = [part for line in plain for part in re.split(r"(?<=[.!?:;])\s+", line)]
    unexplained = [
        (word, sentence)
        for sentence in sentences
        for word in GLOSSARY
        if re.search(rf"(?i)\b{word}", sentence) and not re.search(rf"(?i)\*{word}", sentence)
    ]

    assert unexplained == []


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_what_was_measured_stands_in_tables(page: Path) -> None:
    """Milliseconds, sizes with a decimal and shares in percent are figures, not limits."""
    lines = [line for line in _prose(page).splitlines() if not line.startswith("|")]
    plain = [re.sub(r"`[^`]*`", " ", line) for line in lines]

    figure = re.compile(r"\d ?(?:ms|µs|%)(?!\w)|\d\.\d+ ?(?:s|seconds|MB|GB|kB)(?!\w)")
    assert [line for line in plain if figure.search(line)] == []
