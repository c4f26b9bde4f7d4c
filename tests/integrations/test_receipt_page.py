"""A receipt is one page: it opens from disk, runs nothing, holds its record, and says nothing else
than that record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.terminals import run_piped

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import InvalidInput
from tallystick.recorder import verify_bundle
from tallystick.recorder.bundle import bundle_in
from tallystick.tally import BoundTally
from tallystick_html import receipt_page, says_its_bundle

OpenTally = Callable[..., Tally]
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"' javascript:alert(1)"
KEY = f"sk-proj-{'a' * 40}A1b2"


def _record(bound: BoundTally) -> str:
    with bound.run(HOSTILE, goal=HOSTILE) as run:
        items = [
            ContextItem(id="rule", kind="constraint", content="Answer in one line."),
            ContextItem(id=HOSTILE, kind="file", content=HOSTILE),
            ContextItem(id="ask", kind="user_msg", content="Where does the heron nest?"),
        ]
        for question in ("Where does the heron nest?", "And when?"):
            with run.step("model_call", name=HOSTILE) as step:
                bound.compile(items, budget=400)
                said = [{"role": "user", "content": f"{question} {HOSTILE} {KEY}"}]
                step.record("request", {"messages": said})
                step.record("response", {"answer": f"In the oak. {HOSTILE}"})
        with run.step("tool_call", name="look") as tool:
            tool.record("tool_call", {"name": "look", "arguments": {"at": HOSTILE}})
            tool.record("tool_result", {"result": HOSTILE})
        failing = run.step("tool_call", name="fail")
        failing.fail(ValueError(HOSTILE))
    return run.id


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_page_shows_the_run_and_nothing_in_it_runs_or_loads(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="anna"))
        content = bound.recordings.export_receipt(_record(bound))
    page = receipt_page(content)
    assert page == receipt_page(content)
    text = page.decode()
    for shown in (
        "What the model saw, and why",
        "the latest request always goes in",
        "In the oak.",
        "Redac",
    ):
        assert shown.casefold() in text.casefold()
    assert KEY not in text
    tags = _Tags()
    tags.feed(text)
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "img", "iframe", "link", "object", "form", "svg"}
    addresses = [
        value or ""
        for _, attributes in tags.seen
        for key, value in attributes.items()
        if key in ("href", "src", "action") or key.startswith("on")
    ]
    assert [address[:29] for address in addresses] == ["data:application/zip;base64,U"]
    assert "default-src 'none'" in text


def test_a_page_is_verified_by_the_command_and_one_that_was_changed_is_noticed(
    tmp_path: Path,
) -> None:
    folder, page = tmp_path / "tally", tmp_path / "receipt.html"
    with Tally.open(folder, owner=Actor(user="anna"), background=False) as tally:
        run_id = _record(tally.bind())
    code, written, errors = run_piped(
        "receipt", run_id, "--html", str(page), "--tally", str(folder)
    )
    assert code == 0, errors
    assert page.stat().st_mode & 0o777 == 0o600
    assert verify_bundle(page).ok
    foil = re.search(r": (\d+:sha256:\w+)", "".join(written.split("foil")[1:]).replace("\n", ""))
    assert foil is not None
    code, checked, _ = run_piped("verify", str(page), "--foil", foil[1])
    assert code == 0, checked

    honest = page.read_bytes()
    page.write_bytes(honest.replace(b"In the oak.", b"In the elm."))
    code, lied, _ = run_piped("verify", str(page))
    assert code == 3
    assert "says something else" in lied

    of_another = honest.replace(b'content="tallystick ', b'content="tallystick 9')
    page.write_bytes(of_another)
    code, unsure, _ = run_piped("verify", str(page))
    assert code == 3
    assert "another release" in " ".join(unsure.split())


def test_a_page_with_two_records_or_a_broken_one_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="anna"))
        content = bound.recordings.export_receipt(_record(bound))
    page = receipt_page(content)
    assert says_its_bundle(content) is None
    with pytest.raises(InvalidInput, match="more than one"):
        verify_bundle(page + page)
    broken = page.replace(b"base64,UEsD", b"base64,!!!!")
    with pytest.raises(InvalidInput, match="damaged"):
        verify_bundle(broken)
    with pytest.raises(InvalidInput, match="no bundle"):
        receipt_page(b"<html></html>")
    assert bundle_in(page) == content


def test_records_show_themselves_in_a_notebook_and_print_short(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="anna"))
        memory = bound.remember(f"The heron nests in the oak. {HOSTILE} {'x' * 5_000}")
        run_id = _record(bound)
        found = bound.recall("heron oak")
        steps = bound.recordings.steps(run_id)
        _, compiled = bound.recordings.compiled(steps[0].id)
        with bound.run("other") as run, run.step("model_call") as step:
            pass
        shown: list[Any] = [
            found,
            found[0],
            bound.get(memory.id),
            compiled,
            bound.recordings.run(run_id),
            steps[0],
            bound.recordings.receipts(run_id)[0],
            bound.recordings.verify(run_id),
            run,
            step,
        ]
        for record in shown:
            html = record._repr_html_()
            assert html is not None
            assert html.startswith("<table>")
            assert "<script" not in html
            assert "<img" not in html
        several = [*shown, bound.pack("heron"), bound.inspect(memory.id), memory]
        assert [record for record in several if len(repr(record)) > 300] == []
        assert str(several[2]).startswith("Memory('The heron")
