"""The dashboard: who comes in, what its pages show, and that reading them changes nothing."""

from __future__ import annotations

import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import pytest
from tests.terminals import run_piped

from tallystick import Actor, Tally
from tallystick.errors import StorageError
from tallystick.records import CompileReason, ContextItem, StepKind
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder
from tallystick_html import words
from tallystick_server import Entrance, serve_in_background
from tallystick_server.dashboard import rendering, warming
from tallystick_server.dashboard.application import ROUTES
from tallystick_server.dashboard.visits import ROOMS, is_within
from tallystick_server.guard import COOKIE

from .dashboard import HOSTILE, SECRET, WITHHELD, Browser, Page, Played, play, rows_of, spend
from .served import ADA, BOB, Served, problem, served

HTMX = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
"""SHA-256 of htmx.min.js in htmx.org 4.0.1."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("dashboard")) as there:
        yield there


@pytest.fixture(scope="module")
def played(there: Served) -> Played:
    return play(there.tally, ADA)


@pytest.fixture(scope="module")
def ada(there: Served, played: Played) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        yield browser


# Who comes in


def test_a_link_lets_one_browser_in_once(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t", owner=ADA, embedder=HashEmbedder(), background=False) as tally:
        entrance = Entrance(tally)
        secret = tally.bind(ADA).tokens.make("here", token_class="session").secret
        assert secret is not None
        with (
            serve_in_background(tally, port=0, entrance=entrance) as (base,),
            Browser(base) as browser,
        ):
            link = entrance.offer(secret)
            first = browser.get(link, site="cross-site")
            second = browser.get(link)
            browser.secret = secret
            inside = browser.get("runs", site="same-origin")

    assert first.status == 200
    assert browser.http.cookies.get(COOKIE) == secret
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/ui;" in cookie
    assert secret not in first.source
    assert (second.status, inside.status) == (401, 200)
    assert "was used already" in second.text


def test_without_a_session_there_is_a_page_that_says_how_to_sign_in(there: Served) -> None:
    with Browser(there.tcp) as stranger:
        refused = stranger.get("runs")
        styles = stranger.http.get("/ui/static/dashboard.css")
        routes = stranger.http.get("/v1/runs")
        absent = stranger.get("static/nothing.css")

    assert (refused.status, refused.title) == (401, "Sign in · Tallystick")
    assert "tally ui" in refused.text
    assert (styles.status_code, absent.status) == (200, 404)
    assert problem(routes)["code"] == "unauthenticated"


def test_a_person_signs_in_with_a_session_token_and_out_again(there: Served) -> None:
    secret = there.token(ADA, token_class="session")
    with Browser(there.tcp) as browser:
        door = browser.get("runs").form("/sign-in")
        wrong = browser.send(door, token="tally_wrong")
        foreign = browser.send(door, token=secret, site="cross-site")
        right = browser.send(door, token=secret)
        browser.secret = secret
        page = browser.get("runs")
        left = browser.send(page.form("/sign-out"))
        after = browser.get("runs")

    assert (wrong.status, foreign.status, right.status, page.status) == (401, 422, 200, 200)
    assert (left.status, after.status) == (401, 401)


def test_who_signs_in_finds_the_first_search_warm(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        played = play(there.tally, ADA)
        secret = there.token(ADA, token_class="session")
    with served(tmp_path) as there, Browser(there.tcp) as browser:
        corpora = services_of(there.tally).memory.corpora
        browser.send(browser.get("runs").form("/sign-in"), token=secret)
        until = time.monotonic() + 20
        while not corpora.loads and time.monotonic() < until:
            time.sleep(0.01)
        loads = corpora.loads
        browser.secret = secret
        found = browser.get("memory?q=heron")

    assert loads > 0
    assert corpora.loads == loads
    assert played.memory_id in found.source


def test_what_cannot_be_read_before_is_logged_and_the_page_reads_it(
    there: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(bound: object) -> None:
        raise StorageError("The disk is away.")

    monkeypatch.setattr(warming, "warm", fail)
    warming.make_ready_in_background(there.tally.bind(ADA)).join()

    assert "dashboard.not_ready" in caplog.text


def test_a_request_that_another_page_made_gets_nothing(there: Served, ada: Browser) -> None:
    page = ada.get("runs")
    sign_out = page.form("/sign-out")

    assert ada.get("runs", site="cross-site").status == 401
    assert ada.get("runs", site="same-site").status == 401
    assert ada.send(sign_out, site="cross-site").status == 401
    assert ada.http.get("/ui/runs", headers={"host": "evil.example"}).status_code == 421
    forged = ada.http.post("/ui/sign-out", headers={"origin": "http://evil.example"})
    assert forged.status_code == 403
    assert ada.get("runs").status == 200


def test_a_form_is_refused_without_the_key_of_its_session(there: Served, ada: Browser) -> None:
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        foreign = bob.get("runs").form("/sign-out").fields["form_key"]
    form = ada.get("runs").form("/sign-out")
    cookie = {"cookie": f"{COOKIE}={ada.secret}", "sec-fetch-site": "same-origin"}

    assert ada.send(form, form_key=foreign).status == 403
    assert ada.send(form, form_key="").status == 403
    assert ada.http.post("/ui/sign-out", headers=cookie, json={}).status_code == 422
    doubled = {**cookie, "content-type": "application/x-www-form-urlencoded"}
    twice = ada.http.post("/ui/sign-out", headers=doubled, content=b"form_key=1&form_key=2")
    broken = ada.http.post("/ui/sign-out", headers=doubled, content=b"form_key=%ff%fe&=&\xff")
    assert (twice.status_code, broken.status_code) == (422, 422)
    assert ada.get("runs").status == 200


# What pages show


def test_each_page_belongs_to_one_room_of_the_navigation() -> None:
    pages = {route.path for route in ROUTES if "GET" in (route.methods or ())}
    rooms = {page: [room for room, _ in ROOMS if is_within(room, page)] for page in pages}

    assert {page for page, within in rooms.items() if len(within) != 1} == {"/", "/find"}


def test_the_list_of_runs_has_what_a_person_looks_for(ada: Browser, played: Played) -> None:
    page = ada.get("runs")

    assert "birdwatcher" in page.text
    for text in ("completed", "128", "0.0021 USD", "owl-1", "check"):
        assert text in page.text, text
    assert ada.get("runs?q=nests").text.count("birdwatcher") == 1
    assert "No recorded run" in ada.get("runs?q=nobody").text
    assert "No recorded run" in ada.get("runs?status=failed").text
    assert ada.get("runs?status=odd").status == 422
    assert ada.get("runs?before=soon").status == 404
    ada.get(f"runs/{played.run_id}/verify")
    assert "whole" in ada.get("runs").text


def test_tokens_and_cost_over_runs_and_budgets_over_steps_are_plotted(there: Served) -> None:
    flo = Actor(user="flo")
    runs = [spend(there.tally, flo, [100, 200]), spend(there.tally, flo, [300])]
    with Browser(there.tcp, there.token(flo, token_class="session")) as browser:
        listed = browser.get("runs")
        first, second = (browser.get(f"runs/{run_id}") for run_id in runs)

    bars = r'class="k-model_call" x="[\d.]+" y="[\d.]+" width="66.67" height="([\d.]+)"'
    assert re.findall(bars, listed.source) == ["1000.0", "1000.0", "1000.0", "500.0"]
    assert listed.source.count("<title>spender: 300 tokens</title>") == 2
    assert "<title>spender: 0.0042 USD</title>" in listed.source
    budgets = re.findall(r"<title>Step \d+: \d+ of (\d+) tokens</title>", first.source)
    assert budgets == ["100", "200"]
    assert "Budget over steps" not in second.text  # one context is compared with nothing


def test_older_runs_are_on_the_next_page(there: Served) -> None:
    carol = Actor(user="carol")
    bound = there.tally.bind(carol)
    for number in range(60):
        bound.run(f"agent {number}", domain="odd" if number % 2 else "even").end()
    with Browser(there.tcp, there.token(carol, token_class="session")) as browser:
        pages = [browser.get("runs")]
        while older := [link for link in pages[-1].links if re.search(r"before=[\w-]+$", link)]:
            pages.append(browser.get(older[0], site="same-origin"))
        odd = browser.get("runs?domain=odd")

    found = [re.findall(r"agent (\d+)", page.text) for page in pages]
    assert [number for page in found for number in page] == [str(n) for n in range(59, -1, -1)]
    assert [len(page) for page in found] == [25, 25, 10]
    assert re.findall(r"agent (\d+)", odd.text) == [str(n) for n in range(59, 9, -2)]


def test_the_timeline_of_a_run_shows_each_step_and_what_happened(
    there: Served, ada: Browser, played: Played
) -> None:
    page = ada.get(f"runs/{played.run_id}")
    log = ada.get(f"runs/{played.run_id}?time=log")

    bars = re.findall(r'<rect class="k-(\w+)" x="([\d.]+)%" width="([\d.]+)%"', page.source)
    kinds = [kind for kind, _, _ in bars]
    places = {kind: (float(start), float(width)) for kind, start, width in bars}
    assert kinds[-3:] == ["model_call", "tool_call", "other"]
    outer, inner = places["tool_call"], places["other"]
    assert outer[0] <= inner[0]
    assert inner[0] + inner[1] <= outer[0] + outer[1] + 0.3
    assert all(float(start) + float(width) <= 100.3 for _, start, width in bars)
    assert re.findall(r'class="k-\w+" x="([\d.]+)%"', log.source) != [start for _, start, _ in bars]
    for text in ("120 in, 8 out", "0.0021 USD", "left out", "1 redacted", "private:ada"):
        assert text in page.text, text
    assert ada.get(f"runs/{played.run_id}?time=odd").status == 422


def test_a_long_run_is_read_page_by_page(there: Served, ada: Browser) -> None:
    with there.tally.bind(ADA).run("long") as run:
        for number in range(450):
            run.step("other", name=f"n{number}").end(wait=False)
    page = ada.get(f"runs/{run.id}")
    second = ada.get(next(link for link in page.links if "after=" in link))
    jumped = ada.get(f"runs/{run.id}?after=440")

    assert re.findall(r"\bn(\d+)\b", page.text) == [str(n) for n in range(200)]
    assert re.findall(r"\bn(\d+)\b", second.text) == [str(n) for n in range(200, 400)]
    assert re.findall(r"\bn(\d+)\b", jumped.text) == [str(n) for n in range(441, 450)]
    assert "450" in page.text
    assert ada.get(f"runs/{run.id}/totals").status == 200


def test_a_long_run_says_the_tokens_of_each_step_and_its_totals(there: Served) -> None:
    carol = Actor(user="carol")
    with there.tally.bind(carol).run("counted") as run:
        for number in range(210):
            with run.step("model_call", name=f"n{number}") as step:
                usage = {"input_tokens": 1_000 * number, "output_tokens": 7}
                step.record("response", {"answer": "so"}, summary={"usage": usage})
    with Browser(there.tcp, there.token(carol, token_class="session")) as browser:
        page = browser.get(f"runs/{run.id}?after=199")
        totals = browser.get(next(link for link in page.links if link.endswith("/totals")))

    tokens = re.findall(r"<td>([\d\u202f]+\u202f\d+)<td>", page.source)
    assert tokens == [f"{number}\u202f007" for number in range(200, 210)]
    assert "21 945 000 in, 1 470 out" in totals.text


def test_a_page_of_two_hundred_has_less_than_150_kb_with_all_that_it_loads(
    there: Served, ada: Browser
) -> None:
    bound = there.tally.bind(ADA)
    with bound.run("wide") as run:
        for number in range(199):
            run.step("tool_call", name=f"look at pond {number}").end(wait=False)
        with run.step("model_call", name="wide") as step:
            items = [
                ContextItem(
                    id=f"file:ponds/number_{number}/notes.md",
                    kind="file",
                    content=f"Herons nest at pond {number}. " + "There is more to say. " * 12,
                )
                for number in range(199)
            ]
            request = ContextItem(id="task", kind="user_msg", content="Where do herons nest?")
            bound.compile([request, *items], budget=8_000)
    pages = [ada.get(f"runs/{run.id}"), ada.get(f"steps/{step.id}")]
    rows = [page.elements["tr"] - 1 for page in pages]

    assert rows == [200, 200]
    for page in pages:
        loaded = sum(len(ada.http.get(url).content) for url in page.loads)
        assert loaded > 40_000
        assert len(page.source.encode()) + loaded < 150_000


def test_a_step_shows_what_the_model_saw_and_why(ada: Browser, played: Played) -> None:
    page = ada.get(f"steps/{played.step_id}")

    for candidate in ("message of the user task", "file vault", "file note", "file evil"):
        assert f"<small>{candidate}</small>" in page.source, candidate
    assert ">When does the heron nest?</a>" in page.source
    assert ">withheld by policy</a>" in page.source
    # What would have had to be different.
    assert "It goes in where “The heron nests in March: a note.” does not." in page.text
    for text in (
        "the latest request always goes in",
        "says the same as",
        "policy keeps it out",
        "shortened to its best sentences, to fit",
        "withheld by policy",
        "of 400 tokens",
        "Where does this sentence come from",
        "redacted",
        "In March.",
        "owl-1",
        "sha256:",
    ):
        assert text in page.text + page.source, text
    shares = re.findall(r'<rect class="c-\w+" x="([\d.]+)" width="([\d.]+)"', page.source)
    assert len(shares) > 1
    assert float(shares[0][0]) == 0
    assert sum(float(width) for _, width in shares) == pytest.approx(1000, abs=1)
    left_out = ada.get(f"steps/{played.step_id}?show=exclude")
    assert "message of the user task" not in left_out.source
    assert "file again" in left_out.source + page.source
    assert ada.get(f"steps/{played.step_id}?show=odd").status == 422


def test_a_candidate_is_one_click_from_its_raw_source(ada: Browser, played: Played) -> None:
    step = ada.get(f"steps/{played.step_id}")
    links = [link for link in step.links if "/items/" in link]
    pages = [ada.get(link, site="same-origin") for link in links]

    [of_memory] = [page for page in pages if "The heron nests in March, in the reeds." in page.text]
    assert "Raw source" in of_memory.text
    assert any(played.memory_id in link for link in of_memory.links)
    [of_vault] = [page for page in pages if "policy_denied" in page.text]
    assert "Policy withheld it, here too." in of_vault.text
    assert "Total" in of_memory.text


def test_a_sentence_is_traced_to_where_it_came_from(ada: Browser, played: Played) -> None:
    step = ada.get(f"steps/{played.step_id}")
    found = ada.send(step.form("/trace"), text="nests in march, in the")
    absent = ada.send(step.form("/trace"), text="nobody said this")

    assert "The source, as it arrived" in found.text
    assert "The heron nests in March, in the reeds." in found.text
    assert (absent.status, "holds these words" in absent.text) == (200, True)


def test_the_conversation_reads_in_one_column(ada: Browser, played: Played) -> None:
    page = ada.get(f"runs/{played.run_id}/conversation")

    assert page.text.index("The key is") < page.text.index("In March.")


def test_a_run_is_verified_on_a_page(ada: Browser, played: Played) -> None:
    page = ada.get(f"runs/{played.run_id}/verify")

    assert "The record is whole" in page.text
    assert re.search(r"its foil sha256:[0-9a-f]{64}", page.text)


def test_an_id_opens_what_it_names(ada: Browser, played: Played) -> None:
    form = ada.get("runs").form("/find")

    assert ada.send(form, id=played.run_id[-8:]).url.endswith(f"/runs/{played.run_id}")
    assert ada.send(form, id=played.step_id[-8:]).url.endswith(f"/steps/{played.step_id}")
    assert ada.send(form, id="x").status == 422
    assert ada.send(form, id="nothing-here").status == 404


# What no page does


@pytest.mark.parametrize(
    "path",
    [
        "runs/nothing",
        "steps/nothing",
        "nothing",
        "runs/{run_id}/nothing",
        "steps/{step_id}/items/999",
        "steps/{step_id}/items/x",
        "steps/{step_id}/entries/999",
        "steps/{step_id}/entries/1",
        "steps/{step_id}/state",
    ],
)
def test_what_is_not_there_is_a_plain_page(ada: Browser, played: Played, path: str) -> None:
    page = ada.get(path.format(run_id=played.run_id, step_id=played.step_id))

    assert (page.status, page.title) == (404, "404 · Tallystick")
    assert "Traceback" not in page.source


def test_another_user_sees_none_of_it(there: Served, played: Played) -> None:
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        assert "birdwatcher" not in bob.get("runs").source
        for path in (
            f"runs/{played.run_id}",
            f"runs/{played.run_id}/verify",
            f"runs/{played.run_id}/conversation",
            f"runs/{played.run_id}/totals",
            f"steps/{played.step_id}",
            f"steps/{played.step_id}/items/0",
            f"steps/{played.step_id}/entries/2",
            f"steps/{played.step_id}/trace?text=heron",
        ):
            page = bob.get(path)
            assert page.status == 404, path
            assert "heron" not in page.text.replace("text=heron", ""), path


def _is_safe(page: Page, base: str) -> None:
    """Fail where a page could run, load or show what it must not."""
    assert page.headers["content-security-policy"].startswith("default-src 'none'"), page.url
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["cache-control"] == "no-store"
    assert page.elements.get("script", 0) == 2, page.url  # ours, from files
    assert not {"style", "img", "iframe"} & set(page.elements), page.url
    assert not {name for name in page.attributes if name.startswith(("on", "style"))}, page.url
    for url in (*page.loads, *page.links, *(form.action for form in page.forms)):
        assert url.startswith(f"{base}/ui"), (page.url, url)
    assert WITHHELD not in page.source, page.url
    assert SECRET not in page.source, page.url
    assert "<b>49" not in page.source


def test_reading_every_page_changes_nothing_and_shows_nothing_that_is_withheld(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as own:
        played = play(own.tally, ADA)
        with Browser(own.tcp, own.token(ADA, token_class="session")) as ada:
            before = rows_of(tmp_path / "tally")
            hostile = 0
            seen = set()
            for page in ada.crawl("", f"runs/{played.run_id}", f"steps/{played.step_id}"):
                assert page.status == 200, page.url
                _is_safe(page, own.tcp)
                hostile += HOSTILE.partition(">")[0] in page.text
                seen.add(re.sub(r"[0-9a-f-]{36}|\d+", "*", urlsplit(page.url).path))
            after = rows_of(tmp_path / "tally")

    assert len(seen) > 25
    assert hostile > 3
    assert {name for name in before if before[name] != after[name]} == set()


def test_each_reason_and_kind_has_words() -> None:
    assert set(words.REASONS) == set(get_args(CompileReason))
    assert set(get_args(StepKind)) <= set(words.KINDS)
    assert all(words.REASONS.values())


def test_what_is_vendored_is_whole_and_has_its_licence() -> None:
    script = (rendering.STATIC / "htmx.min.js").read_bytes()

    assert hashlib.sha256(script).hexdigest() == HTMX
    assert "Zero-Clause BSD" in (rendering.STATIC / "htmx.LICENSE").read_text(encoding="utf-8")


# The command


@pytest.mark.slow
def test_tally_ui_serves_until_it_is_stopped_and_ends_its_session(tmp_path: Path) -> None:
    where = tmp_path / "t"
    with Tally.open(where, owner=ADA, embedder=HashEmbedder(), background=False):
        pass
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rules]]\nid = "r"\nname = "No shells"\ndescription = "None."\neffect = "deny"\n'
        'applies_to = "tool_call"\n'
    )
    person, terminal = pty.openpty()
    command = "from tallystick_cli.app import main; main()"
    started = subprocess.Popen(
        [
            sys.executable,
            "-c",
            command,
            "ui",
            "--no-browser",
            "--tally",
            str(where),
            "--rules",
            str(rules),
        ],
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "400"},
    )
    try:
        assert started.stdout is not None
        link = ""
        while "enter?key=" not in link:
            link = started.stdout.readline()
            assert link, "it ended"
        base, _, key = link.strip().partition("/ui/")
        with Browser(base) as browser:
            entered = browser.get(key)
            browser.secret = browser.http.cookies.get(COOKIE)
            inside = browser.get("runs")
            policy = browser.get("policy")
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=30) == 0
    finally:
        started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()
        os.close(person)
        os.close(terminal)
    with Tally.open(where, embedder=HashEmbedder(), background=False) as tally:
        [session] = tally.bind(ADA).tokens.list()

    assert (entered.status, inside.status) == (200, 200)
    assert "No shells" in policy.text
    assert (session.token_class, session.revoked_reason) == ("session", "the dashboard was closed")


def test_tally_ui_needs_a_person(tmp_path: Path) -> None:
    code, _, errors = run_piped("ui", "--tally", str(tmp_path / "t"))

    assert code == 2
    assert "needs a person at a terminal" in " ".join(errors.split())
