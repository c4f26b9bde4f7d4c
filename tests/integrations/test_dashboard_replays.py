"""Comparing in the dashboard: two steps side by side, and a step made again with changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tallystick_server.dashboard.replays import WEIGHTS

from .dashboard import WITHHELD, Browser, Played, play
from .served import ADA, BOB, Served, served


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("replays")) as there:
        yield there


@pytest.fixture(scope="module")
def played(there: Served) -> Played:
    return play(there.tally, ADA)


@pytest.fixture(scope="module")
def ada(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        yield browser


def test_an_exact_replay_is_a_job_and_then_says_whether_the_request_is_the_same(
    there: Served, played: Played, ada: Browser
) -> None:
    exact = ada.get(f"steps/{played.step_id}/replay").forms[2]
    waiting = ada.send(exact)
    there.tally.drain()
    page = ada.get(waiting.url)

    assert exact.fields["how"] == "exact"
    assert (waiting.status, "A worker makes the step again" in waiting.text) == (200, True)
    assert "Side by side" in page.text
    assert "The recorded request was made again, and it is the same." in page.text
    [replay] = [
        run for run in there.tally.bind(ADA).recordings.runs() if "replay_of" in run.metadata
    ]
    assert played.step_id in ada.get(f"runs/{replay.id}").source


def test_a_replay_with_a_smaller_budget_shows_what_would_have_been_left_out(
    there: Served, played: Played, ada: Browser
) -> None:
    form = ada.get(f"steps/{played.step_id}/replay").forms[3]
    waiting = ada.send(form, token_budget="150", weight_trust="900", **{"drop:evil": "yes"})
    there.tally.drain()
    page = ada.get(waiting.url)

    assert form.fields["how"] == "changed"
    assert {f"weight_{name}" for name in WEIGHTS} <= set(form.fields)
    assert "400 → 150" in page.text
    assert "left" in page.text
    assert WITHHELD not in page.source


def test_an_edited_text_is_replayed_at_once(there: Served, played: Played, ada: Browser) -> None:
    form = ada.get(f"steps/{played.step_id}/replay").forms[3]
    page = ada.send(form, edited="again", text="The heron nests in May: an edited note.")

    assert (page.status, "Side by side" in page.text) == (200, True)
    assert "/diff?" in page.url


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 422),
        ({"token_budget": "many"}, 422),
        ({"token_budget": "0"}, 422),
        ({"edited": "nothing-there", "text": "x"}, 422),
        ({"weight_trust": "-1"}, 422),
    ],
)
def test_a_replay_that_would_change_nothing_or_cannot_be_is_refused(
    played: Played, ada: Browser, fields: dict[str, str], status: int
) -> None:
    form = ada.get(f"steps/{played.step_id}/replay").forms[3]

    assert ada.send(form, **fields).status == status


def test_a_step_is_compared_with_the_one_before_it(there: Served, ada: Browser) -> None:
    bound = there.tally.bind(ADA)
    with bound.run("pair") as run:
        steps = []
        for answer in ("red", "blue"):
            with run.step("model_call", name="ask") as step:
                step.record("request", {"messages": [{"role": "user", "content": "Which?"}]})
                step.record("response", {"answer": {"role": "assistant", "content": answer}})
            steps.append(step.id)
    page = ada.get(f"steps/{steps[1]}/changed")
    asked = ada.get("diff")
    same = ada.send(asked.form("/diff"), before=steps[0], after=steps[0])

    assert "red" in page.text
    assert "blue" in page.text
    assert "Nothing" in same.text
    assert ada.get(f"steps/{steps[0]}/changed").status == 404
    assert ada.get(f"steps/{steps[0]}/replay").status == 404
    assert ada.get(f"diff?before={steps[0]}&after=nothing").status == 404


def test_another_user_compares_and_replays_none_of_it(
    there: Served, played: Played, ada: Browser
) -> None:
    form = ada.get(f"steps/{played.step_id}/replay").forms[2]
    waiting = ada.send(form)
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        own = play(there.tally, BOB)
        key = bob.get(f"steps/{own.step_id}/replay").forms[2].fields["form_key"]
        pages = [
            bob.get(f"diff?before={played.step_id}&after={own.step_id}"),
            bob.get(f"diff?before={own.step_id}&after={played.step_id}"),
            bob.get(f"steps/{played.step_id}/changed"),
            bob.get(f"steps/{played.step_id}/replay"),
            bob.send(form, form_key=key),
            bob.get(waiting.url),
        ]

    assert [page.status for page in pages] == [404] * 6
