"""Stewardship over HTTP: what Prometheus scrapes, health, events, and the page of the dashboard."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tallystick.errors import Denied, InvalidInput, StateConflict
from tallystick.settings import Settings
from tallystick_server import RemoteTally

from .dashboard import Browser
from .served import ADA, BOB, ROOT, Served, served


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("steward"), settings=Settings()) as there:
        there.tally.bind(ADA).remember("The heron nests at the weir.")
        yield there


@pytest.fixture(scope="module")
def root(there: Served) -> Iterator[RemoteTally]:
    with there.remote(ROOT) as root:
        yield root


def test_prometheus_scrapes_the_measures_with_the_token_of_an_operator(there: Served) -> None:
    answer = there.http(there.token(ROOT)).get("/v1/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"tallystick_operations", "tallystick_queue_depth", "tallystick_database_bytes"} <= names
    assert there.http(there.token(ADA)).get("/v1/metrics").status_code == 403


def test_health_is_read_whole_and_by_part(root: RemoteTally, there: Served) -> None:
    health = root.steward.health()
    assert health.score == min(each.score for each in health.domains)
    assert root.steward.diagnose("queue").score == health.of("queue").score
    assert root.steward.health_scores().domains == health.scores
    with there.remote(BOB) as bob:
        for ask in (bob.steward.health, bob.steward.health_scores):
            with pytest.raises(Denied):
                ask()
    unknown = there.http(there.token(ROOT)).get("/v1/diagnostics/queues")
    assert unknown.status_code == 422
    assert "mutation_safety" in unknown.text


def test_repairs_rest_and_analyses_count(root: RemoteTally) -> None:
    assert root.steward.repair("check", reason="a look").state == "done"
    with pytest.raises(StateConflict, match="done again at"):
        root.steward.repair("check", reason="a look")
    usage = [each.labels["operation"] for each in root.steward.analytics("usage")]
    assert "remember" in usage
    with pytest.raises(InvalidInput, match="memory-safety"):
        root.steward.analytics("costs")  # type: ignore[arg-type]


def test_events_go_on_behind_a_cursor_and_never_above_a_right(there: Served) -> None:
    with there.remote(ADA) as ada, there.remote(BOB) as bob:
        stored = ada.remember("The stork sleeps.")
        told = ada.steward.events(after=0)
        assert told[-1].subject_id == stored.id
        assert ada.steward.events(after=told[-1].cursor) == []
        assert bob.steward.events(after=0) == []
        assert [each.event for each in ada.steward.timeline(stored.id)] == ["memory.add"]


def test_events_are_sent_as_they_happen_and_resumed_by_their_id(there: Served) -> None:
    client = there.http(there.token(ADA))
    with there.remote(ADA) as ada:
        first = ada.remember("The crane calls.")
        cursor = ada.steward.events(after=0)[-1].cursor
        second = ada.remember("The crane is silent.")
    headers = {"last-event-id": str(cursor - 1)}
    seen = []
    with client.stream("GET", "/v1/events/stream", headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: "))["event"]["subject_id"])
            if len(seen) == 2:
                break
    assert seen == [first.id, second.id]


def test_the_page_shows_scores_plots_and_a_way_to_stop(there: Served) -> None:
    with Browser(there.tcp, there.token(ROOT, token_class="session")) as browser:
        assert any(each.endswith("/stewardship") for each in browser.get("health").links)
        page = browser.get("stewardship")
        assert "Stewardship: " in page.text
        assert "mutation safety" in page.text.lower()
        assert "It stops before its next action." in page.text
