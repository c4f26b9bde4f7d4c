"""Documents of memory are the same over HTTP, by MCP and in the dashboard, and a page shows no
text that somebody may not see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.terminals import run_piped

from tallystick.errors import InvalidInput, NotFound, StateConflict
from tallystick.records import ProviderDeclaration
from tallystick.records.synthesis import DraftRequest
from tallystick.tally import Tally
from tallystick_mcp import serve
from tallystick_server import RemoteTally
from tallystick_synthesis import Synthesis
from tallystick_synthesis.templates import output_types

from .dashboard import Browser, Page
from .mcp_clients import connected, payload
from .served import ADA, BOB, served

OpenTally = Callable[..., Tally]
LEDGER = "The ledger moved from Postgres to SQLite on 4 May <b>for good</b>."


def test_a_document_is_made_through_the_client_and_shown_in_the_dashboard(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        with RemoteTally.connect(there.tcp, token=there.token(ADA)) as remote:
            remote.remember(LEDGER, kind="decision")
            run = remote.synthesis.plan("the ledger")
            with pytest.raises(StateConflict, match="not collected"):
                remote.synthesis.draft(run.id)
            with pytest.raises(InvalidInput, match="nothing to go on"):
                remote.synthesis.plan()
            remote.synthesis.sections(run.id)
            remote.synthesis.draft(run.id)
            verified = remote.synthesis.verify(run.id).verification
            assert verified is not None
            assert verified.verdict == "passed_with_gaps"
            preview = remote.synthesis.remember(run.id)
            kept = remote.synthesis.remember(
                run.id, mode="apply", confirm_token=preview.confirm_token
            )
            assert remote.get(kept.memory_id or "").kind == "artifact"
            assert [each.id for each in remote.synthesis.runs()] == [run.id]
        with (
            RemoteTally.connect(there.tcp, token=there.token(BOB)) as other,
            pytest.raises(NotFound),
        ):
            other.synthesis.run(run.id)
        with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
            listed = browser.get("syntheses")
            page = browser.get(f"syntheses/{run.id}")
        with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
            foreign = bob.get(f"syntheses/{run.id}")

    assert "architecture overview" in listed.text
    assert "for good" in page.text
    assert "<b>for good" not in page.source
    assert "#s7-1" in page.source
    assert foreign.status == 404
    assert "ledger" not in foreign.source


async def test_an_agent_plans_drafts_and_verifies_a_document_by_mcp(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind(ADA).remember(LEDGER, kind="decision")
        async with connected(serve(tally, actor=ADA), "auto") as client:

            async def manage(**arguments: object) -> dict[str, object]:
                result = await client.call_tool("manage", arguments)
                answer: dict[str, object] = payload(result)
                assert not result.is_error, answer
                return answer

            planned = await manage(
                action="synthesize_plan", query="the ledger", changes={"format": "markdown"}
            )
            run_id = planned["synthesize_plan"]["id"]  # type: ignore[index]
            await manage(action="synthesize_draft", id=run_id)
            verified = await manage(action="synthesize_verify", id=run_id)
            shown = payload(await client.call_tool("explore", {"mode": "synthesis", "id": run_id}))

    verdict = verified["synthesize_verify"]["verification"]["verdict"]  # type: ignore[index]
    assert verdict == "passed_with_gaps"
    assert "Architecture overview" in shown["synthesis"]["markdown"]


class Waiting:
    """Drafts a section, and waits before the one about the gateway."""

    declaration = ProviderDeclaration(name="writer", model="writer-1", local=True)

    def __init__(self) -> None:
        self.has_come, self.may_go_on = threading.Event(), threading.Event()

    def draft(self, request: DraftRequest) -> str:
        if request.title == "The gateway":
            self.has_come.set()
            assert self.may_go_on.wait(30)
        return f"“{request.items[0][1]}” [1]"


def act(browser: Browser, page: Page, action: str) -> Page:
    [form] = [each for each in page.forms if each.fields.get("action") == action]
    return browser.send(form)


def test_the_page_takes_an_outline_of_levels_and_shows_how_far_a_model_is(tmp_path: Path) -> None:
    writer = Waiting()
    with served(tmp_path, drafter=writer) as there:
        there.tally.bind(ADA).remember_many([LEDGER, "The gateway answers HTTP."])
        with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
            planning = browser.get("syntheses").forms[-1]
            page = browser.send(
                planning,
                output_type="custom",
                outline="The ledger\n  The gateway\nThe rest",
            )
            assert "2. The ledger / The gateway" in page.text
            assert "3. The rest" in page.text
            page = act(browser, act(browser, page, "collect"), "write")
            assert "0 of 3 sections" in page.text
            working = threading.Thread(target=there.tally.drain)
            working.start()
            assert writer.has_come.wait(30)
            page = browser.get(page.url)
            assert "1 of 3 sections" in page.text
            assert "hx-trigger" in page.attributes
            writer.may_go_on.set()
            working.join(60)
            page = browser.get(page.url)
            assert "of 3 sections" not in page.text
            assert "for good" in act(browser, page, "verify").text


def test_the_page_offers_every_type_once_and_leads_to_older_documents(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        synthesis = Synthesis(there.tally.bind(ADA))
        first = synthesis.plan("the oldest", output_type="release_notes")
        for number in range(100):
            synthesis.plan(f"number {number}", output_type="custom", outline=[{"title": "A"}])
        with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
            page = browser.get("syntheses")
            [older] = [each for each in page.links if "before=" in each]
            assert f"syntheses/{first.id}" not in page.source
            assert f"syntheses/{first.id}" in browser.get(older).source
            types = [each for each in output_types() if f"<option>{each}</option>" in page.source]
            assert types == list(output_types())


def test_a_page_of_documents_is_full_although_others_are_hidden(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        ada = there.tally.bind(ADA, "project:apollo")
        bob = there.tally.bind(BOB.replace(projects=frozenset({"apollo"})), "project:apollo")
        shown = Synthesis(ada).plan("the ledger")
        for _ in range(3):
            Synthesis(ada).plan("the ledger", scopes=["private:ada", "project:apollo"])
        assert [each.id for each in Synthesis(bob).runs(limit=2)] == [shown.id]


def test_a_page_is_written_of_any_draft_and_of_nothing_else(tmp_path: Path) -> None:
    place, page = str(tmp_path / "tally"), tmp_path / "page.html"
    with Tally.open(place, background=False) as tally:
        tally.bind().remember("The ledger \ud800 moved in May.", kind="decision")
        run = Synthesis(tally.bind()).plan(output_type="custom", outline=[{"title": "The ledger"}])
    where = ("--tally", place, "--html", str(page))
    code, _, errors = run_piped("synthesize", "show", run.id, *where)
    assert (code, page.exists()) == (2, False)
    assert "no draft" in errors

    for step in ("sections", "draft"):
        assert run_piped("synthesize", step, run.id, "--tally", place)[0] == 0
    for form in ((), ("--format", "json")):
        assert run_piped("synthesize", "show", run.id, *where, *form)[0] == 0
        assert "The ledger \\ud800 moved in May." in page.read_text()
        page.unlink()
